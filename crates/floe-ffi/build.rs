//! Linker options of the shared library.

fn main() {
    // Threads of the host own queues. When such a thread ends, code of the library returns its
    // queue, so the library must stay loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The number is the major version of the ABI.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfloe.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
