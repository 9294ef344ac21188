// All of Treadle. `#include <treadle/treadle.h>` is all a program needs; DLPack exchange is in
// treadle/dlpack.h.
#pragma once

#include "treadle/attention.h"
#include "treadle/block_layout.h"
#include "treadle/block_lists.h"
#include "treadle/capture.h"
#include "treadle/dtype.h"
#include "treadle/error.h"
#include "treadle/executor.h"
#include "treadle/float16.h"
#include "treadle/key_lists.h"
#include "treadle/layout.h"
#include "treadle/memory.h"
#include "treadle/mod.h"
#include "treadle/mods.h"
#include "treadle/patterns.h"
#include "treadle/sparse_attention.h"
#include "treadle/sparse_transformer.h"
#include "treadle/tensor.h"
#include "treadle/trace.h"
#include "treadle/version.h"
#include "treadle/view.h"
