// SPDX-License-Identifier: Apache-2.0
// Open MPI's library, loaded when ranks are first asked for: what runs in one process needs none.
//
//   TESSERA_RETURN_IF_ERROR(LoadMpi());
//   int rank = 0;
//   Mpi().Comm_rank(Mpi().comm_world, &rank);
//
// <mpi.h> gives types and constants; what has an address in the library is a member here, functions
// by MPI's names without the prefix. Nothing else of MPI may be named in this program, or the
// linker would ask for the library.
#ifndef TESSERA_DIST_COMM_MPI_LIBRARY_H_
#define TESSERA_DIST_COMM_MPI_LIBRARY_H_

// The bindings for C++ would ask for the library, too.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "base/status.h"

namespace tessera::dist {

// Loads the library, once per process; it stays. NotFound with a line that names it, says what the
// loader says of it, and which package has it.
Status LoadMpi();

// The symbols of a loaded library.
class MpiSymbols {
 public:
  // `library` is what dlopen gave.
  explicit MpiSymbols(void* library) : library_(library) {}

  // Of any pointer's type; null where there is no such symbol, which `missing` then names.
  struct Address {
    void* address;
    template <typename T>
    operator T*() const {
      return reinterpret_cast<T*>(address);
    }
  };
  Address operator()(const char* name);
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

struct MpiLibrary {
  MpiSymbols symbols;

#define TESSERA_MPI_FUNCTION(name) decltype(&MPI_##name) name = symbols("MPI_" #name)
  TESSERA_MPI_FUNCTION(Abort);
  TESSERA_MPI_FUNCTION(Allgather);
  TESSERA_MPI_FUNCTION(Allreduce);
  TESSERA_MPI_FUNCTION(Barrier);
  TESSERA_MPI_FUNCTION(Bcast);
  TESSERA_MPI_FUNCTION(Cancel);
  TESSERA_MPI_FUNCTION(Comm_dup);
  TESSERA_MPI_FUNCTION(Comm_free);
  TESSERA_MPI_FUNCTION(Comm_group);
  TESSERA_MPI_FUNCTION(Comm_rank);
  TESSERA_MPI_FUNCTION(Comm_set_errhandler);
  TESSERA_MPI_FUNCTION(Comm_size);
  TESSERA_MPI_FUNCTION(Comm_split);
  TESSERA_MPI_FUNCTION(Comm_split_type);
  TESSERA_MPI_FUNCTION(Error_string);
  TESSERA_MPI_FUNCTION(Finalize);
  TESSERA_MPI_FUNCTION(Get_count);
  TESSERA_MPI_FUNCTION(Group_free);
  TESSERA_MPI_FUNCTION(Group_translate_ranks);
  TESSERA_MPI_FUNCTION(Iallgather);
  TESSERA_MPI_FUNCTION(Iallreduce);
  TESSERA_MPI_FUNCTION(Ialltoall);
  TESSERA_MPI_FUNCTION(Ibarrier);
  TESSERA_MPI_FUNCTION(Ibcast);
  TESSERA_MPI_FUNCTION(Init_thread);
  TESSERA_MPI_FUNCTION(Initialized);
  TESSERA_MPI_FUNCTION(Irecv);
  TESSERA_MPI_FUNCTION(Ireduce);
  TESSERA_MPI_FUNCTION(Ireduce_scatter_block);
  TESSERA_MPI_FUNCTION(Isend);
  TESSERA_MPI_FUNCTION(Recv);
  TESSERA_MPI_FUNCTION(Reduce_local);
  TESSERA_MPI_FUNCTION(Reduce_scatter_block);
  TESSERA_MPI_FUNCTION(Send);
  TESSERA_MPI_FUNCTION(Test);
  TESSERA_MPI_FUNCTION(Testall);
  TESSERA_MPI_FUNCTION(Wait);
#undef TESSERA_MPI_FUNCTION

  // What Open MPI's predefined handles point to.
  MPI_Comm comm_world = symbols("ompi_mpi_comm_world");
  MPI_Datatype byte_type = symbols("ompi_mpi_byte");
  MPI_Datatype double_type = symbols("ompi_mpi_double");
  MPI_Datatype float_type = symbols("ompi_mpi_float");
  MPI_Datatype int_type = symbols("ompi_mpi_int");
  MPI_Datatype int32_type = symbols("ompi_mpi_int32_t");
  MPI_Datatype int64_type = symbols("ompi_mpi_int64_t");
  MPI_Datatype uint8_type = symbols("ompi_mpi_uint8_t");
  MPI_Datatype uint16_type = symbols("ompi_mpi_uint16_t");
  MPI_Errhandler errors_return = symbols("ompi_mpi_errors_return");
  MPI_Info info_null = symbols("ompi_mpi_info_null");
  MPI_Op op_max = symbols("ompi_mpi_op_max");
  MPI_Op op_min = symbols("ompi_mpi_op_min");
  MPI_Op op_sum = symbols("ompi_mpi_op_sum");
};

namespace internal {
extern const MpiLibrary* mpi_library;
}

// After LoadMpi has succeeded.
inline const MpiLibrary& Mpi() { return *internal::mpi_library; }

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_MPI_LIBRARY_H_
