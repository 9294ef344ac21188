#include "treadle/dlpack.h"

#include <dlpack/dlpack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "base/element.h"

namespace treadle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A producer's tensor of 2 x 3 floats 0 ... 5 that counts the calls of its deleter.
struct Producer {
  std::vector<float> data{0, 1, 2, 3, 4, 5};
  Dims shape{2, 3};
  Dims strides{3, 1};
  int deleted = 0;
  DLManagedTensor managed{};

  Producer() {
    managed.dl_tensor = {.data = data.data(),
                         .device = {.device_type = kDLCPU, .device_id = 0},
                         .ndim = 2,
                         .dtype = {.code = kDLFloat, .bits = 32, .lanes = 1},
                         .shape = shape.data(),
                         .strides = strides.data(),
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Producer*>(self->manager_ctx)->deleted;
    };
  }

  DLTensor& tensor() { return managed.dl_tensor; }

  // The message of from_dlpack, which must leave the tensor alone.
  std::string error() {
    try {
      (void)from_dlpack(&managed);
    } catch (const Error& error) {
      EXPECT_EQ(deleted, 0);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("from_dlpack: "), HasSubstr("belongs to the caller")));
      return error.what();
    }
    return "no error";
  }
};

TEST(Dlpack, ReadsTheProducersMemory) {
  Producer producer;
  {
    const DlpackTensor tensor = from_dlpack(&producer.managed);
    EXPECT_EQ(tensor.view().data(), producer.data.data());
    EXPECT_EQ(tensor.view().shape(), (Dims{2, 3}));
    EXPECT_EQ(tensor.view().at<float>({1, 1}), 4);
    EXPECT_EQ(producer.deleted, 0);
  }
  EXPECT_EQ(producer.deleted, 1);
}

TEST(Dlpack, MovesDeleteOnce) {
  Producer first;
  Producer second;
  {
    DlpackTensor tensor = from_dlpack(&first.managed);
    DlpackTensor moved = std::move(tensor);
    EXPECT_EQ(tensor.view().count(), 0);  // NOLINT: what is promised after a move
    moved = from_dlpack(&second.managed);
    EXPECT_EQ(first.deleted, 1);
    EXPECT_EQ(second.deleted, 0);
  }
  EXPECT_EQ(first.deleted, 1);
  EXPECT_EQ(second.deleted, 1);
}

TEST(Dlpack, NullDeleterAndNullStrides) {
  Producer producer;
  producer.managed.deleter = nullptr;
  producer.tensor().strides = nullptr;
  EXPECT_EQ(from_dlpack(&producer.managed).view().strides(), (Dims{3, 1}));
  EXPECT_EQ(producer.deleted, 0);
}

TEST(Dlpack, StridesAndByteOffset) {
  Producer producer;
  producer.shape = {3, 2};
  producer.strides = {-1, 3};
  producer.tensor().byte_offset = 8;
  const DlpackTensor tensor = from_dlpack(&producer.managed);
  EXPECT_EQ(tensor.view().at<float>({0, 0}), 2);
  EXPECT_EQ(tensor.view().at<float>({2, 1}), 3);
}

TEST(Dlpack, RankZeroAndNoElements) {
  Producer scalar;
  scalar.tensor().ndim = 0;
  scalar.tensor().shape = nullptr;
  scalar.tensor().strides = nullptr;
  EXPECT_EQ(from_dlpack(&scalar.managed).view().at<float>({}), 0);
  Producer empty;
  empty.shape = {0, 3};
  empty.tensor().data = nullptr;
  EXPECT_EQ(from_dlpack(&empty.managed).view().count(), 0);
}

TEST(Dlpack, ErrorsLeaveTheTensorToTheCaller) {
  EXPECT_THROW((void)from_dlpack(nullptr), Error);
  const auto error_after = [](auto change) {
    Producer producer;
    change(producer.tensor());
    return producer.error();
  };
  EXPECT_THAT(error_after([](DLTensor& t) { t.device.device_type = kDLCUDA; }),
              HasSubstr("device 2"));
  // One that this version of DLPack does not name.
  EXPECT_THAT(error_after([](DLTensor& t) {
                const std::int32_t unknown = 90;
                std::memcpy(&t.device.device_type, &unknown, sizeof(unknown));
              }),
              HasSubstr("device 90"));
  EXPECT_THAT(error_after([](DLTensor& t) { t.dtype.lanes = 4; }), HasSubstr("4 lanes"));
  EXPECT_THAT(error_after([](DLTensor& t) { t.dtype.bits = 24; }), HasSubstr("24 bits"));
  EXPECT_THAT(error_after([](DLTensor& t) { t.dtype.code = kDLComplex; }), HasSubstr("code 5"));
  // Another 8-bit float, kDLFloat8_e4m3fnuz.
  EXPECT_THAT(error_after([](DLTensor& t) { t.dtype = {.code = 11, .bits = 8, .lanes = 1}; }),
              HasSubstr("code 11 with 8 bits"));
  EXPECT_THAT(error_after([](DLTensor& t) { t.ndim = -1; }), HasSubstr("-1 axes"));
  EXPECT_THAT(error_after([](DLTensor& t) { t.shape = nullptr; }), HasSubstr("no shape"));
  EXPECT_THAT(error_after([](DLTensor& t) { t.shape[1] = -3; }), HasSubstr("[2, -3]"));
  EXPECT_THAT(error_after([](DLTensor& t) { t.data = nullptr; }), HasSubstr("null data"));
  EXPECT_THAT(error_after([](DLTensor& t) { t.byte_offset = 2; }), HasSubstr("aligned"));
}

TEST(Dlpack, EveryTypeGoesOutAndIn) {
  for (const DType type : base::all_dtypes) {
    Tensor tensor(type, {2, 3});
    void* data = tensor.view().data();
    base::store_int(data, type, 4, 1);
    DLManagedTensor* managed = to_dlpack(std::move(tensor));
    EXPECT_EQ(managed->dl_tensor.data, data);
    EXPECT_EQ(managed->dl_tensor.dtype.bits, size_of(type) * 8);
    if (type == DType::boolean) {
      EXPECT_EQ(managed->dl_tensor.dtype.code, 6);
    }
    if (type == DType::e4m3) {
      EXPECT_EQ(managed->dl_tensor.dtype.code, 10);
    }
    if (type == DType::e5m2) {
      EXPECT_EQ(managed->dl_tensor.dtype.code, 12);
    }
    const DlpackTensor back = from_dlpack(managed);
    EXPECT_EQ(back.view().dtype(), type);
    EXPECT_EQ(back.view().strides(), (Dims{3, 1}));
    EXPECT_EQ(base::load_int(back.view().data(), type, 4), 1);
  }
}

TEST(Dlpack, ViewsKeepTheirOwnerAlive) {
  const auto owner = std::make_shared<std::vector<double>>(6);
  DLManagedTensor* managed = to_dlpack(View(owner->data(), {3, 2}, {1, 3}), owner);
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(managed->dl_tensor.strides[1], 3);
  managed->deleter(managed);
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace treadle
