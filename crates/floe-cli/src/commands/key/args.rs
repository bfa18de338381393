//! The arguments of `floe key`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Print a new secret key; store it in a file that only its owner can read
    Generate {
        /// The name of the key, such as cache.example.org-1
        name: String,
    },
    /// Read a secret key, and print its public key
    Public {
        /// The file of the secret key; without it, stdin
        file: Option<PathBuf>,
    },
}
