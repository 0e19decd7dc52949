#include "autograd/autocast.h"

#include <utility>

#include "core/error.h"

namespace tessera {
namespace {

thread_local DType products = DType::kFloat32;

}  // namespace

AutocastScope::AutocastScope(DType dtype) : before_(std::exchange(products, dtype)) {
  if (dtype == DType::kFloat32 || IsHalf(dtype)) return;
  products = before_;
  throw Error("autocast", Concat("to ", dtype, ": use bfloat16, float16 or float32"));
}

AutocastScope::~AutocastScope() { products = before_; }

DType AutocastDType() { return products; }

}  // namespace tessera
