// SPDX-License-Identifier: Apache-2.0
// Takes the place of the driver's libcuda.so.1 in cudnn_plan_test: cuDNN compiles plans for a GPU
// that is described to it, and needs a driver only to hand the compiled code to. This one takes any
// code, has no GPU and runs nothing. A driver's functions have C linkage and return 0 for success;
// arguments that are not read are not declared.
namespace {
int some_object;
}  // namespace

extern "C" {

constexpr int kNoDevice = 100;

int cuInit() { return kNoDevice; }
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kNoDevice;
}
int cuDeviceGet() { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_NO_DEVICE";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "no device";
  return 0;
}
int cuLibraryLoadData(void** library) {
  *library = &some_object;
  return 0;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = &some_object;
  return 0;
}
int cuLibraryUnload() { return 0; }
int cuKernelSetAttribute() { return 0; }
int cuFuncSetAttribute() { return 0; }

// Looked up when cuDNN starts, and not called while it compiles.
int cuCtxGetCurrent() { return kNoDevice; }
int cuCtxGetDevice() { return kNoDevice; }
int cuCtxGetLimit() { return kNoDevice; }
int cuCtxPopCurrent() { return kNoDevice; }
int cuCtxPushCurrent() { return kNoDevice; }
int cuStreamGetCtx() { return kNoDevice; }
int cuStreamSynchronize() { return kNoDevice; }
int cuLinkCreate() { return kNoDevice; }
int cuLinkCreate_v2() { return kNoDevice; }
int cuLinkAddData() { return kNoDevice; }
int cuLinkAddData_v2() { return kNoDevice; }
int cuLinkAddFile_v2() { return kNoDevice; }
int cuLinkComplete() { return kNoDevice; }
int cuLinkDestroy() { return kNoDevice; }
int cuLaunchKernel() { return kNoDevice; }
int cuLaunchKernelEx() { return kNoDevice; }
int cuLaunchCooperativeKernel() { return kNoDevice; }
int cuLibraryLoadFromFile() { return kNoDevice; }
int cuKernelGetAttribute() { return kNoDevice; }
int cuFuncGetAttribute() { return kNoDevice; }
int cuModuleLoadData() { return kNoDevice; }
int cuModuleLoadDataEx() { return kNoDevice; }
int cuModuleLoadFatBinary() { return kNoDevice; }
int cuModuleUnload() { return kNoDevice; }
int cuModuleGetFunction() { return kNoDevice; }
int cuModuleGetGlobal_v2() { return kNoDevice; }
int cuMemcpyDtoH_v2() { return kNoDevice; }
int cuTensorMapEncodeTiled() { return kNoDevice; }
int cuDeviceGetAttribute() { return kNoDevice; }
int cuDevicePrimaryCtxRetain() { return kNoDevice; }
int cuDevicePrimaryCtxRelease() { return kNoDevice; }
int cuDevicePrimaryCtxReset() { return kNoDevice; }
int cuOccupancyMaxPotentialClusterSize() { return kNoDevice; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor() { return kNoDevice; }

}  // extern "C"
