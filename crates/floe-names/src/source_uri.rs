//! The descriptions of name sources.

use std::fmt;
use std::path::PathBuf;

use floe_transfer::url::redact_credentials;

use crate::error::NameError;
use crate::hydra::HydraUri;
use crate::list::ListUri;
use crate::name_spec::is_alias;
use crate::pins::PinsUri;

/// A configured source: `[ALIAS=]URI`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameSource {
    /// The text before `#` by which the user can choose the source.
    pub alias: Option<String>,
    /// The kind of the source and its place.
    pub uri: NameSourceUri,
}

/// The kind of a source and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameSourceUri {
    /// `file:PATH`: a TOML or JSON file with names and paths.
    File(PathBuf),
    /// `hydra+https://HOST/PROJECT/JOBSET`: the newest builds of a jobset.
    Hydra(HydraUri),
    /// `list:PATH` or `list+https://…`: a list of store paths, such as that of a channel.
    List(ListUri),
    /// `lock:PATH`: a file that `floe lock` made.
    Lock(PathBuf),
    /// `pins+https://…`, `pins+s3://…` or `pins+file:///…`: the pins of a binary cache.
    Pins(PinsUri),
}

impl NameSource {
    /// Whether this is a lock file, whose names may have the alias of another source.
    pub fn is_lock(&self) -> bool {
        matches!(self.uri, NameSourceUri::Lock(_))
    }

    /// Parses a description.
    ///
    /// Errors: [`NameError::SourceUri`]; the text says which part is wrong.
    pub fn parse(text: &str) -> Result<NameSource, NameError> {
        let refused = |reason: String| NameError::SourceUri {
            text: redact_credentials(text),
            reason,
        };
        let (alias, uri) = match text.split_once('=') {
            Some((alias, uri)) if is_alias(alias) => (Some(alias.to_owned()), uri),
            _ => (None, text),
        };
        let uri = if let Some(rest) = uri.strip_prefix("file:") {
            NameSourceUri::File(absolute(rest).map_err(refused)?)
        } else if let Some(url) = uri.strip_prefix("hydra+") {
            NameSourceUri::Hydra(HydraUri::parse(url).map_err(refused)?)
        } else if let Some(url) = uri.strip_prefix("list+") {
            NameSourceUri::List(ListUri::parse_url(url).map_err(refused)?)
        } else if let Some(url) = uri.strip_prefix("pins+") {
            NameSourceUri::Pins(PinsUri::parse(url).map_err(refused)?)
        } else if let Some(rest) = uri.strip_prefix("lock:") {
            NameSourceUri::Lock(absolute(rest).map_err(refused)?)
        } else if let Some(rest) = uri.strip_prefix("list:") {
            let path = absolute(rest).map_err(refused)?;
            NameSourceUri::List(ListUri::File(path))
        } else {
            return Err(refused(
                "a source begins with file:, list:, list+https://, hydra+https:// or \
                 pins+https://, after ALIAS= if it has a name"
                    .into(),
            ));
        };
        Ok(NameSource { alias, uri })
    }
}

/// Returns the absolute path of a file in a description.
fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = match text.strip_prefix('/') {
        // Of several slashes, the system reads one.
        Some(below) => format!("/{}", below.trim_start_matches('/')),
        None => text.to_owned(),
    };
    if ["", "/"].contains(&&*path) {
        return Err("it names no file".into());
    }
    std::path::absolute(path).map_err(|error| error.to_string())
}

impl fmt::Display for NameSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(alias) = &self.alias {
            write!(f, "{alias}=")?;
        }
        self.uri.fmt(f)
    }
}

impl fmt::Display for NameSourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameSourceUri::File(path) => write!(f, "file:{}", path.display()),
            NameSourceUri::Hydra(hydra) => hydra.fmt(f),
            NameSourceUri::List(list) => list.fmt(f),
            NameSourceUri::Lock(path) => write!(f, "lock:{}", path.display()),
            NameSourceUri::Pins(pins) => pins.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_printed_as_they_are_read() {
        for text in [
            "file:/etc/floe/names.toml",
            "team=file:/srv/names.json",
            "nixpkgs=hydra+https://hydra.nixos.org/nixos/unstable?prefix=nixpkgs.",
            "hydra+http://localhost:3000/hydra/team/main",
            "a=hydra+https://h.example/p/j?prefix=x.&system=aarch64-linux",
            "channel=list+https://channels.nixos.org/nixos-unstable/store-paths.xz",
            "list:/srv/paths.zst",
            "lock:/srv/floe.lock",
            "team=pins+https://cache.example.org",
            "pins+s3://bucket?region=eu-west-1",
            "pins+file:///srv/cache",
        ] {
            assert_eq!(NameSource::parse(text).unwrap().to_string(), text);
        }
        let file = NameSource::parse("file:///etc/names").unwrap();
        assert_eq!(file.uri, NameSourceUri::File("/etc/names".into()));
    }

    #[test]
    fn wrong_descriptions_are_refused_without_credentials() {
        for text in [
            "",
            "names.toml",
            "file:",
            "hydra+https://",
            "list:",
            "list+file:///x",
            "pins+/srv/cache",
            "pins+ssh://host",
            "hydra+https://host/project",
            "hydra+ftp://host/p/j",
            "hydra+https://host/p/j?unknown=1",
            "hydra+https://host/p/j#x",
            "https://cache.example.org",
        ] {
            let error = NameSource::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("cannot use the name source "), "{error}");
        }
        let error = NameSource::parse("hydra+https://user:secret@host/p").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
