//! How the shared library is linked.

fn main() {
    // Threads of the host keep lanes that are given back when they end, by code of the library: it
    // must stay loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The number is the major version of the ABI.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfloe.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
