// SPDX-License-Identifier: Apache-2.0
#include "train/run/adapter_start.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "autograd/autograd.h"
#include "base/error.h"
#include "dist/mesh/unshard.h"
#include "dist/store/parameter_shard.h"
#include "nlohmann/json.hpp"
#include "nn/low_rank.h"
#include "ops/random/random.h"
#include "ops/view/view.h"

namespace tessera::train {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix ToMatrix(const Tensor& t) {
  const Tensor wide = CastCopy(t, DType::kFloat64).ContiguousCopy();
  return Eigen::Map<const Matrix>(wide.data<double>(), t.size(0), t.size(1));
}

Tensor ToTensor(const Matrix& m) {
  const Tensor t = Empty({m.rows(), m.cols()}, DType::kFloat64);
  Eigen::Map<Matrix>(t.data<double>(), m.rows(), m.cols()) = m;
  return t;
}

void CheckRank(const Tensor& weight, int64_t rank) {
  TESSERA_CHECK(weight.ndim() == 2 && rank >= 1 && rank <= std::min(weight.size(0), weight.size(1)),
                "adapter_start", "rank ", rank, " of a weight ", weight);
}

// The `rank` greatest singular values of `m` with their vectors, as a [rank, columns] and b
// [rows, rank]; of `basis` times `m`, where there is a basis of orthonormal columns. They are the
// eigenvectors of the smaller of m m^T and m^T m, and what `m` makes of those. A value below 1e-8
// of the greatest one is inexact so, which float32 weights do not show; Eigen's singular value
// decompositions take a minute to compile.
LowRankStart FromSingular(const Matrix& m, int64_t rank, double scale,
                          const Matrix* basis = nullptr) {
  const bool wide = m.rows() < m.cols();
  const Matrix square = wide ? Matrix(m * m.transpose()) : Matrix(m.transpose() * m);
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(square);  // values in ascending order
  const Matrix near = solver.eigenvectors().rightCols(rank).rowwise().reverse();
  const Eigen::VectorXd values = solver.eigenvalues().tail(rank).reverse().cwiseMax(0).cwiseSqrt();
  Matrix u = wide ? near : Matrix(m * near);
  Matrix v = wide ? Matrix(m.transpose() * near) : near;
  if (basis != nullptr) u = *basis * u;
  for (Eigen::Index k = 0; k < rank; ++k) {
    // A sign is a decomposition's to choose: fixed here.
    Eigen::Index largest = 0;
    u.col(k).cwiseAbs().maxCoeff(&largest);
    const double root = std::sqrt(values(k) / scale) * (u(largest, k) < 0 ? -1 : 1);
    // The side that is a product has the value as a factor already.
    const double product_root = values(k) > 0 ? root / values(k) : 0;
    u.col(k) *= wide ? root : product_root;
    v.col(k) *= wide ? product_root : root;
  }
  return {.a = ToTensor(v.transpose()), .b = ToTensor(u)};
}

Matrix OrthonormalColumns(const Matrix& m) {
  const Eigen::HouseholderQR<Matrix> qr(m);
  return qr.householderQ() * Matrix::Identity(m.rows(), m.cols());
}

}  // namespace

LowRankStart PrincipalStart(const Tensor& weight, int64_t rank, double scale) {
  CheckRank(weight, rank);
  return FromSingular(ToMatrix(weight), rank, scale);
}

LowRankStart PrincipalStart(const Tensor& weight, int64_t rank, double scale, int iterations,
                            const RandomKey& key) {
  CheckRank(weight, rank);
  const Matrix w = ToMatrix(weight);
  const Matrix random = ToMatrix(Randn({weight.size(1), rank}, key));
  Matrix basis = OrthonormalColumns(w * random);
  for (int i = 0; i < iterations; ++i) {
    basis = OrthonormalColumns(w * OrthonormalColumns(w.transpose() * basis));
  }
  return FromSingular(basis.transpose() * w, rank, scale, &basis);
}

LowRankStart OrthonormalStart(const Tensor& weight, int64_t rank) {
  CheckRank(weight, rank);
  const Matrix w = ToMatrix(weight);
  const Eigen::HouseholderQR<Matrix> qr(w);
  Matrix q = qr.householderQ() * Matrix::Identity(w.rows(), rank);
  const Matrix upper = qr.matrixQR().triangularView<Eigen::Upper>();
  Matrix r = upper.topRows(rank);
  for (Eigen::Index k = 0; k < rank; ++k) {
    if (r(k, k) >= 0) continue;
    q.col(k) *= -1;
    r.row(k) *= -1;
  }
  return {.a = ToTensor(r), .b = ToTensor(q)};
}

Status StartFromWeights(const std::string& init, uint64_t seed,
                        const models::AttachedAdapter& adapter, models::Model& model) {
  if (model.build().device.is_meta()) return OkStatus();
  const NoGrad no_grad;
  for (const models::AttachedAdapter::Term& term : adapter.terms) {
    const nn::Parameter& weight = *model.FindParameter(term.module + ".weight");
    if (weight.elsewhere) continue;
    const nn::LowRankConfig& config = term.term->config();
    const Shape& shape = weight.placement.global_shape();
    if (config.rank > std::min(shape[0], shape[1])) {
      return InvalidArgument("init_lora_weights is ", init, ", and the rank ", config.rank,
                             " is greater than that of '", weight.name, "' ", shape);
    }
    Tensor whole;
    {
      const dist::GatheredScope gathered({weight.tensor});
      const Tensor found =
          dist::Unshard(weight.tensor.Detach(), weight.placement, model.build().tensor_parallel);
      // What is gathered is gone behind the scope.
      whole = Empty(found.shape(), found.dtype());
      CopyInto(whole, CopyTo(found, Device::Cpu()));
    }
    if (term.term->layout() == LinearLayout::kInOut) whole = Transpose(whole, 0, 1);
    const std::string prefix = "pissa_niter_";
    LowRankStart start;
    if (init == "olora") {
      start = OrthonormalStart(whole, config.rank);
    } else if (init.starts_with(prefix)) {
      start =
          PrincipalStart(whole, config.rank, config.scale, std::atoi(init.c_str() + prefix.size()),
                         NoiseKey(seed, weight.name + ".pissa", 0, 0));
    } else {
      start = PrincipalStart(whole, config.rank, config.scale);
    }
    term.term->StartWith(start.a, start.b);
  }
  return OkStatus();
}

}  // namespace tessera::train
