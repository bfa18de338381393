//! Files and directories below a store. Other users may exchange names there, and file systems may
//! report errors late.

mod derivation_file;
mod directory;
mod free_space;
mod layout;
mod list_directory;
pub(crate) mod mount_id;
pub(crate) mod mount_table;
mod open_beneath;
mod regular_file;
mod written_file;

pub(crate) use derivation_file::{derivation_name, read_derivation, read_derivation_of};
pub use directory::is_trusted_owner;
pub(crate) use directory::{Directory, Entry, NewMode};
pub use free_space::FileSystem;
pub(crate) use free_space::free_bytes;
pub use layout::StoreLayout;
pub use list_directory::{DirectoryEntry, list_directory};
pub use open_beneath::open_beneath;
pub use regular_file::{open_regular_file, read_regular_file};
pub use written_file::{UnfinishedFile, WrittenFile, write_file};
