//! The arguments of `floe hash`.

use std::ffi::OsString;

use clap::{Args, ValueEnum, ValueHint};
use floe_format::{Hash, HashAlgorithm};

use crate::args::{OutputArgs, hash_algorithm};

#[derive(Debug, Args)]
pub(crate) struct HashArgs {
    /// The hash algorithm [default: sha256, and with --convert that of the hash]
    #[arg(long = "type", aliases = ["algo", "hash-algo"], value_name = "ALGORITHM")]
    #[arg(value_parser = hash_algorithm())]
    pub(crate) algorithm: Option<HashAlgorithm>,
    /// The form of the hash
    #[arg(
        long,
        visible_alias = "to",
        value_name = "FORMAT",
        default_value = "sri"
    )]
    pub(crate) format: HashForm,
    /// Hash the bytes of files instead of NARs
    #[arg(long)]
    pub(crate) flat: bool,
    /// The hashed contents, in Nix's words
    #[arg(long, hide = true, conflicts_with = "flat")]
    pub(crate) mode: Option<HashMode>,
    /// Print other forms of the hashes on the command line, and read no files
    #[arg(long, conflicts_with_all = ["flat", "mode"])]
    pub(crate) convert: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Files and directories, or with --convert hashes
    #[arg(value_hint = ValueHint::AnyPath, value_name = "FILE|HASH", required = true)]
    pub(crate) inputs: Vec<OsString>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl HashArgs {
    pub(crate) fn is_flat(&self) -> bool {
        self.flat || self.mode == Some(HashMode::Flat)
    }
}

/// The text form of a hash (`HashFormat`).
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HashForm {
    /// The algorithm and base 64, as Subresource Integrity of the W3C
    Sri,
    /// Nix's base 32
    #[value(alias = "base32")]
    Nix32,
    /// Hexadecimal
    Base16,
    /// Base 64
    Base64,
}

impl HashForm {
    /// Returns a hash in this form.
    pub(crate) fn text(self, hash: &Hash) -> String {
        match self {
            HashForm::Sri => hash.to_sri(),
            HashForm::Nix32 => hash.digest_nix32(),
            HashForm::Base16 => hash.digest_base16(),
            HashForm::Base64 => hash.digest_base64(),
        }
    }
}

/// The hashed contents (`FileIngestionMethod`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HashMode {
    /// The NAR of a file or directory
    Nar,
    /// The bytes of a file
    Flat,
}
