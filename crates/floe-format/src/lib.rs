//! The formats of Nix stores and binary caches as plain values.
//!
//! This crate parses, prints and verifies. It touches no file, socket, clock or environment
//! variable. A parser never panics on its input: it returns an error with the offending value, and
//! a named constant limits the length of every input.
//!
//! The rules are those of the newest Nix. Where a rule here is stricter than in Nix, the
//! documentation of the item states the difference and the reason.
//!
//! ```
//! use floe_format::{NarInfo, StoreDir};
//!
//! let text = b"StorePath: /nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello\n\
//!     URL: nar/hello.nar\n\
//!     Compression: none\n\
//!     NarHash: sha256:1hsqqvfv8bgg5jmzcx4wrnmllcw0w43cjhl1b0xb51wdq4kxrv1z\n\
//!     NarSize: 120\n";
//! let narinfo = NarInfo::parse(text, &StoreDir::default())?;
//! assert_eq!(narinfo.info.path.name(), "hello");
//! # Ok::<(), floe_format::narinfo::NarInfoError>(())
//! ```

pub mod base16;
pub mod base64;
pub mod cache_info;
pub mod compression;
pub mod content_address;
pub mod derivation;
pub mod drv_name;
pub mod elf;
pub mod hash;
pub mod hash_part;
pub mod lease;
pub mod nar;
pub mod narinfo;
pub mod netrc;
pub mod nix32;
pub mod nix_conf;
pub mod path_info;
pub mod pin;
pub mod realisation;
pub mod reference_scan;
pub mod signature;
pub mod size;
pub mod store_path;
pub mod validity_registration;

pub use cache_info::CacheInfo;
pub use compression::Compression;
pub use content_address::ContentAddress;
pub use derivation::Derivation;
pub use hash::{Hash, HashAlgorithm};
pub use hash_part::HashPart;
pub use narinfo::NarInfo;
pub use netrc::Netrc;
pub use path_info::{JsonFormat, PathInfo, sum_of_sizes};
pub use realisation::{DrvKey, DrvOutput, Realisation};
pub use signature::{PublicKey, SecretKey, Signature, TrustedKeys};
pub use size::Size;
pub use store_path::{StoreDir, StorePath};
pub use validity_registration::ValidityRegistration;
