// Updates of a run of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPTIM_UPDATE_CHUNKS_H_
#define TESSERA_OPTIM_UPDATE_CHUNKS_H_

#include <cstdint>

namespace tessera::optim {

enum class UpdateType : uint8_t { kFloat32, kBFloat16, kFloat16 };

// Computed in float32.
struct UpdateChunk {
  UpdateType type;       // of param
  UpdateType grad_type;  // of grad
  int64_t n;
  void* param;    // "="
  float* master;  // the weights where type is half (param = their rounding), else nullptr
  const void* grad;
  float grad_scale;
};

// g = grad * grad_scale + l2 * w;  w -= decay * w
// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
// w -= step_size * m / (sqrt(v) * inverse_sqrt_bias2 + eps)
struct AdamChunk {
  UpdateChunk base;
  float* exp_avg;     // m, "="
  float* exp_avg_sq;  // v, "="
  float l2;
  float decay;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float inverse_sqrt_bias2;
  float eps;
  float step_size;
};

// g = grad * grad_scale + l2 * w;  b = momentum * b + g;  w -= lr * (nesterov ? g + momentum * b :
// b)
struct SgdChunk {
  UpdateChunk base;
  float* buffer;  // b, "="; nullptr: w -= lr * g
  float l2;
  float momentum;
  float lr;
  bool nesterov;
};

struct UpdateChunks {
  void (*adam)(const AdamChunk& chunk);
  void (*sgd)(const SgdChunk& chunk);
};

namespace baseline {
extern const UpdateChunks kUpdateChunks;
}
namespace avx2 {
extern const UpdateChunks kUpdateChunks;
}
namespace avx512 {
extern const UpdateChunks kUpdateChunks;
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_UPDATE_CHUNKS_H_
