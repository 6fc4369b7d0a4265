# SPDX-License-Identifier: Apache-2.0
# This is a recipe for Spack. Use it from a clone by spack repo add examples/packaging/spack && spack dev-build twill@main
from spack.package import *


class Twill(CMakePackage):
    """Topology-aware collectives for training codes on CPUs, in a small C library."""

    git = "file:///path/of/the/clone"  # spack dev-build does not read it

    license("Apache-2.0")
    version("main", branch="main")

    variant("libfabric", default=True, description="Fabrics by libfabric, opened at run time")
    variant("memkind", default=True, description="Place memory with memkind, opened at run time")
    variant("openmp", default=True, description="Split large reductions over OpenMP threads")
    variant("pmix", default=False, description="Start under launchers that speak PMIx")
    variant("tools", default=True, description="twillrun, twill-bench, twill-info, twill-place")
    variant("page", default=True, description="twillrun --page, a web page of a running job")
    variant("mpi", default=False, description="libtwill-mpi, for programs of the MPI")

    depends_on("c", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hwloc@2:")
    depends_on("libsodium@1.0.18:")
    depends_on("libfabric@1.17:", when="+libfabric")
    depends_on("memkind@1.14:", when="+memkind")
    depends_on("pmix@3:", when="+pmix")
    depends_on("json-c@0.15:", when="+tools")
    depends_on("libmicrohttpd@0.9.71:", when="+tools+page")
    depends_on("python@3.7:", type="run", when="+tools")
    depends_on("mpi", when="+mpi")

    def cmake_args(self):
        args = [
            self.define_from_variant("TWILL_WITH_LIBFABRIC", "libfabric"),
            self.define_from_variant("TWILL_WITH_MEMKIND", "memkind"),
            self.define_from_variant("TWILL_WITH_OPENMP", "openmp"),
            self.define_from_variant("TWILL_WITH_PMIX", "pmix"),
            self.define_from_variant("TWILL_WITH_MICROHTTPD", "page"),
            self.define_from_variant("TWILL_BUILD_TOOLS", "tools"),
            self.define_from_variant("TWILL_BUILD_BENCH", "tools"),
            self.define_from_variant("TWILL_BUILD_MPI", "mpi"),
            self.define("TWILL_BUILD_TESTS", False),
        ]
        if self.spec.satisfies("+mpi"):
            args.append(self.define("TWILL_MPICC", self.spec["mpi"].mpicc))
        return args
