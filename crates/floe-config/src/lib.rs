//! The configuration of floe's front ends, as plain options.
//!
//! Nix's configuration files, the environment, and the file of `floe serve` go in. Options of the
//! crates below come out, and each setting knows where its value comes from.
//!
//! The crate reads files. It does not read the environment: the caller captures the variables in
//! an [`Environment`]. It does not print either: warnings are part of what a function returns.

pub mod accounts;
mod conf_reader;
mod config;
mod environment;
mod error;
mod network;
mod nix_settings;
mod origin;
mod secret_keys;
mod serve_settings;
mod setting;
mod store_uri;
mod value;

pub use config::{Config, OverriddenValue, SettingEntry, UnknownSetting};
pub use environment::{Environment, ProcessUser};
pub use error::ConfigError;
pub use network::setting_note;
pub use origin::Origin;
pub use secret_keys::{read_secret_keys, secret_key_warnings};
pub use serve_settings::{ServeEntry, ServeOption, ServeSettings};
pub use setting::{AnySetting, Assignment, Setting};
pub use store_uri::{
    ServedStore, StoreAccess, StoreChoice, StoreFlags, build_log_dir, served_store,
};
pub use value::{
    AccessLogFormat, ByteSize, Check, Choice, FileList, Form, List, OptionalFile, PublicKeys,
    StderrFormat, TomlType, UrlList, UrlSet, Value, Word, seconds,
};
