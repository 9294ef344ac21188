// Arguments of calls: lists and tuples of the package's, which are trusted.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "captures.h"
#include "function.h"
#include "treadle/sequences.h"

namespace treadle::python {

// Of (name, element type, rank).
std::vector<Declared> declared_from(const nanobind::list& list);

// Arrays, ints and floats.
BoundCaptures captures_from(const nanobind::list& list);

std::optional<View> optional_view(nanobind::handle array);

Function::Tensors tensors_from(nanobind::handle q, nanobind::handle k, nanobind::handle v,
                               const nanobind::list& captures);

// (q, q_starts, k, v, k_starts), or of keys in pages (q, q_starts, k, v, table, lengths, tokens first,
// k_scales or None, v_scales or None).
Sequences sequences_from(const nanobind::tuple& parts);

// What few calls have: None, or a tuple of sinks (None for none), q_offsets, kv_offsets and, if there is
// dropout, its probability, seed and offset (or None).
void add_extras(Function::Tensors& tensors, nanobind::handle extras);

}  // namespace treadle::python
