//! The origin of the value of a setting.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No file, variable or flag sets the value.
    Default,
    /// A line of a file.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, counted from 1.
        line: usize,
    },
    /// A line of `NIX_CONFIG`, counted from 1.
    NixConfig(usize),
    /// An environment variable that holds one value.
    Variable(&'static str),
    /// A flag on the command line.
    Flag(&'static str),
}

impl Origin {
    /// Whether both are lines of files, and of different ones.
    pub(crate) fn is_other_file(&self, other: &Origin) -> bool {
        match (self, other) {
            (Origin::File { path, .. }, Origin::File { path: other, .. }) => path != other,
            _ => false,
        }
    }

    pub(crate) fn to_json(&self) -> Json {
        match self {
            Origin::Default => json!({ "kind": "default" }),
            Origin::File { path, line } => {
                json!({ "kind": "file", "file": path.to_string_lossy(), "line": line })
            }
            Origin::NixConfig(line) => {
                json!({ "kind": "environment", "variable": NIX_CONFIG, "line": line })
            }
            Origin::Variable(name) => json!({ "kind": "environment", "variable": name }),
            Origin::Flag(flag) => json!({ "kind": "flag", "flag": flag }),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::NixConfig(line) => write!(f, "{NIX_CONFIG}:{line}"),
            Origin::Variable(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// The variable whose text overrides all configuration files.
pub(crate) const NIX_CONFIG: &str = "NIX_CONFIG";
