//! The formats of Nix stores and binary caches as plain values: parse, print, verify.
//!
//! Nothing in this crate touches a file, a socket, a clock or the environment, and nothing in it
//! panics on bytes that come from elsewhere: every parser returns an error that says what was
//! attempted on what, and every limit is a named constant that the error names.
//!
//! The rules are those of the newest Nix. Where this crate is stricter than Nix, the item's
//! documentation says so and why.
//!
//! ```
//! use floe_format::{NarInfo, StoreDir};
//!
//! let text = b"StorePath: /nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello\n\
//!     URL: nar/hello.nar\n\
//!     Compression: none\n\
//!     NarHash: sha256:1hsqqvfv8bgg5jmzcx4wrnmllcw0w43cjhl1b0xb51wdq4kxrv1z\n\
//!     NarSize: 120\n";
//! let nar_info = NarInfo::parse(text, &StoreDir::default())?;
//! assert_eq!(nar_info.info.path.name(), "hello");
//! # Ok::<(), floe_format::narinfo::NarInfoError>(())
//! ```

pub mod base16;
pub mod base64;
pub mod cache_info;
pub mod compression;
pub mod content_address;
pub mod derivation;
pub mod hash;
pub mod hash_part;
pub mod nar;
pub mod narinfo;
pub mod netrc;
pub mod nix32;
pub mod nix_conf;
pub mod path_info;
pub mod signature;
pub mod store_path;

pub use cache_info::CacheInfo;
pub use compression::Compression;
pub use content_address::ContentAddress;
pub use derivation::Derivation;
pub use hash::{Hash, HashAlgorithm};
pub use hash_part::HashPart;
pub use narinfo::NarInfo;
pub use netrc::Netrc;
pub use path_info::PathInfo;
pub use signature::{PublicKey, SecretKey, Signature, TrustedKeys};
pub use store_path::{StoreDir, StorePath};
