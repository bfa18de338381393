//! Lists of store paths, such as the `store-paths.xz` of a channel.

mod document;
mod entry;
mod query;
mod systems;

use std::fmt;
use std::path::PathBuf;

use floe_transfer::url::{parse_url, redact_credentials};

pub(crate) use document::load;
pub use entry::{Entry, parse_list};
pub(crate) use query::query_all;

/// The place of a list: `list:PATH` or `list+https://…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListUri {
    /// A file.
    File(PathBuf),
    /// An `http` or `https` URL.
    Url(String),
}

impl ListUri {
    /// Parses the text after `list+`.
    ///
    /// Errors: the text says which part is wrong.
    pub(crate) fn parse_url(text: &str) -> Result<ListUri, String> {
        match parse_url(text) {
            Ok(url) if ["http", "https"].contains(&url.scheme()) => {
                Ok(ListUri::Url(text.to_owned()))
            }
            _ => Err("it is not an http or https URL; write list:PATH for a file".into()),
        }
    }
}

impl fmt::Display for ListUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListUri::File(path) => write!(f, "list:{}", path.display()),
            ListUri::Url(url) => write!(f, "list+{}", redact_credentials(url)),
        }
    }
}
