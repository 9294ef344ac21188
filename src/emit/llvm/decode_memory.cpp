// In: a spec and the kernel's arguments. Out: addresses, and numbers in the compute type.
#include "emit/llvm/decode_memory.h"

#include "emit/llvm/convert.h"
#include "emit/llvm/fetch.h"

namespace treadle::emit::llvm {

DecodeMemory::DecodeMemory(Builder& builder, const plan::DecodeKernelSpec& of,
                           const Arguments<Args>& args)
    : build(builder),
      spec(of),
      keys{of.key_type, &plan::KeyGroup::keys, &plan::KeyGroup::key_stride,
           of.key_scales ? args[&Args::key_scales] : nullptr},
      values{of.value_type, &plan::KeyGroup::values, &plan::KeyGroup::value_stride,
             of.value_scales ? args[&Args::value_scales] : nullptr},
      key_groups(args[&Args::groups]),
      next_groups(args[&Args::next]),
      count(args[&Args::count]),
      queries(args[&Args::queries]),
      rows(args[&Args::rows]),
      turned(args[&Args::turned]),
      wide(args[&Args::values]),
      scores(args[&Args::scores]),
      sums(args[&Args::sums]),
      weight(args[&Args::weight]) {
  Value* lanes = build.index(build.lanes());
  groups = build.CreateUDiv(build.CreateNSWAdd(count, build.index(build.lanes() - 1)), lanes);
}

void DecodeMemory::for_rows(const std::function<void(const Rows&)>& body) {
  Value* whole = build.CreateNSWSub(rows, build.index(spec.rows.rest));
  if (spec.rows.fours)
    build.loop(build.index(0), whole, 4, [&](Value* first) { body({first, 4}); });
  if (spec.rows.rest > 0) body({whole, spec.rows.rest});
}

void DecodeMemory::for_groups(const std::function<void(Value*)>& body) {
  build.loop(build.index(0), groups, 1, body);
}

Value* DecodeMemory::first_key(Value* group) {
  return build.CreateNSWMul(group, build.index(build.lanes()));
}

Value* DecodeMemory::keys_of(Value* group) {
  return build.CreateBinaryIntrinsic(::llvm::Intrinsic::smin,
                                     build.CreateNSWSub(count, first_key(group)),
                                     build.index(build.lanes()));
}

DecodeMemory::Group DecodeMemory::group_of(const Operand& of, Value* number) {
  const auto member = [&](Value* all, auto which) {
    Value* at = build.CreateNSWMul(number, build.index(sizeof(plan::KeyGroup)));
    return Arguments<plan::KeyGroup>(build, build.element(build.getInt8Ty(), all, at))[which];
  };
  Value* first = member(key_groups, of.rows);
  ::llvm::Type* address = build.getInt64Ty();
  Value* ahead = build.CreateSub(build.CreatePtrToInt(member(next_groups, of.rows), address),
                                 build.CreatePtrToInt(first, address));
  return {of, number, first, member(key_groups, of.stride), ahead};
}

DecodeMemory::Row DecodeMemory::row_of(const Group& group, Value* lane) {
  Value* scale = nullptr;
  if (group.of.scales != nullptr) {
    Value* key = build.CreateNSWAdd(first_key(group.number), lane);
    scale = build.CreateLoad(build.getFloatTy(),
                             build.element(build.getFloatTy(), group.of.scales, key));
  }
  ::llvm::Type* byte = build.getInt8Ty();
  Value* row = build.CreateGEP(byte, group.rows, build.CreateNSWMul(lane, group.stride));
  return {group.of.type, row, scale, build.CreateGEP(byte, row, group.ahead)};
}

Value* DecodeMemory::address_of(const Row& row, Value* d) {
  return build.element(stored_type(build, row.type), row.address, d);
}

Value* DecodeMemory::stored(const Row& row, Value* d, bool vector) {
  ::llvm::Type* element = stored_type(build, row.type);
  Value* loaded = build.load(vector ? build.vector(element) : element, address_of(row, d));
  if (row.scale == nullptr) return from_stored(build, loaded, row.type, spec.compute);
  Value* scale = vector ? build.splat(row.scale) : row.scale;
  Value* number = build.CreateFMul(from_stored(build, loaded, row.type, DType::f32), scale);
  return from_stored(build, number, DType::f32, spec.compute);
}

// Rows are aligned as their elements are, not as words.
Value* DecodeMemory::words_of(const Row& row, Value* d) {
  return build.CreateAlignedLoad(build.vector(build.getInt32Ty()), address_of(row, d),
                                 ::llvm::Align(size_of(row.type)));
}

void DecodeMemory::fetch_next(const Row& row, Value* d) {
  if (row.next == nullptr) return;
  prefetch(build, build.CreateGEP(stored_type(build, row.type), row.next, d));
}

Value* DecodeMemory::real_at(Value* array, Value* row, std::int64_t width, Value* at) {
  return build.element(build.real(), array,
                       build.CreateNSWAdd(build.CreateNSWMul(row, build.index(width)), at));
}

Value* DecodeMemory::scores_of(Value* row, Value* group) {
  return real_at(scores, row, spec.key_block, first_key(group));
}

Value* DecodeMemory::sums_of(Value* row, Value* d) { return real_at(sums, row, spec.value_dim, d); }

Value* DecodeMemory::total_of(Value* row) { return build.element(build.real(), weight, row); }

Value* DecodeMemory::weight_of(Value* row, Value* key) {
  return build.CreateLoad(build.real(), real_at(scores, row, spec.key_block, key));
}

}  // namespace treadle::emit::llvm
