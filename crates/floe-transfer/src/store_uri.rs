//! How a user names a store or a cache, in Nix's manner.

use std::fmt;
use std::path::{Path, PathBuf};

use floe_format::{Compression, StoreDir};
use floe_store::StoreLayout;

use crate::error::Error;
use crate::url::{percent_decode, redact_credentials};

/// A store or a binary cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUri {
    /// A local store.
    Local(LocalStoreUri),
    /// A cache behind HTTP or HTTPS.
    Http(HttpCacheUri),
    /// A cache in a directory.
    File(FileCacheUri),
}

/// A local store, with what is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalStoreUri {
    /// Where its parts lie.
    pub layout: StoreLayout,
    /// The lower, the sooner it is asked (`priority`, 0 unless said otherwise, as in Nix).
    pub priority: i32,
    /// Whether its paths need no signature (`trusted`).
    pub trusted: bool,
}

/// A cache behind HTTP or HTTPS, with what is said of it instead of what it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCacheUri {
    /// Its address, without a slash at the end.
    pub url: String,
    /// The lower, the sooner it is asked (`priority`).
    pub priority: Option<i32>,
    /// Whether it likes to be asked for many paths at once (`want-mass-query`).
    pub want_mass_query: Option<bool>,
    /// Whether its paths need no signature (`trusted`).
    pub trusted: bool,
}

/// A cache in a directory, with the choices for writing to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCacheUri {
    /// The directory of `nix-cache-info`.
    pub directory: PathBuf,
    /// The lower, the sooner it is asked (`priority`), instead of what it says itself.
    pub priority: Option<i32>,
    /// Whether its paths need no signature (`trusted`).
    pub trusted: bool,
    /// How NARs are compressed (`compression`, xz unless said otherwise, as in Nix).
    pub compression: Compression,
    /// How hard (`compression-level`); each method has its default.
    pub level: Option<i32>,
    /// The files of the keys that sign (`secret-key`, `secret-keys`).
    pub secret_keys: Vec<PathBuf>,
    /// Whether a listing is written beside each narinfo (`write-nar-listing`).
    pub write_listings: bool,
}

impl From<StoreLayout> for StoreUri {
    /// A local store of which nothing is said.
    fn from(layout: StoreLayout) -> StoreUri {
        StoreUri::Local(LocalStoreUri {
            layout,
            priority: 0,
            trusted: false,
        })
    }
}

impl fmt::Display for StoreUri {
    /// The address without parameters and credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUri::Local(store) => store.layout.real_store_dir.display().fmt(f),
            StoreUri::Http(http) => f.write_str(&redact_credentials(&http.url)),
            StoreUri::File(file) => write!(f, "file://{}", file.directory.display()),
        }
    }
}

impl StoreUri {
    /// Parses `auto`, `local`, `local?root=…`, a directory (a store under that root), `file://…`
    /// or `http(s)://…`. `data_home` is where a user's own data lies, for `auto`; `store_dir` is
    /// the store directory of a local store whose address does not name one.
    pub fn parse(
        text: &str,
        store_dir: Option<&StoreDir>,
        data_home: Option<&Path>,
    ) -> Result<StoreUri, Error> {
        let fail = |reason: &str| Error::InvalidStoreUri {
            text: redact_credentials(text),
            reason: reason.into(),
        };
        let is_http = text.starts_with("http://") || text.starts_with("https://");
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let parameters = parse_query(query).map_err(|reason| fail(&reason))?;
        if is_http {
            return parse_http(base, &parameters).map_err(|reason| fail(&reason));
        }
        if let Some(directory) = base.strip_prefix("file://") {
            return parse_file(directory, &parameters).map_err(|reason| fail(&reason));
        }
        let store_dir = store_dir.cloned();
        match base {
            "" => Err(fail("it is empty")),
            "auto" if parameters.is_empty() => match store_dir {
                Some(dir) => Ok(StoreLayout::without_root(dir).into()),
                None => Ok(StoreLayout::auto(data_home).into()),
            },
            "auto" | "local" => parse_local(None, &parameters, store_dir).map_err(|r| fail(&r)),
            "daemon" => Err(fail(
                "the Nix daemon is not a target yet; run floe as root on the store itself, or \
                 give a store of your own with --root DIR",
            )),
            _ if base.starts_with("local://") => {
                let root = base
                    .strip_prefix("local://")
                    .filter(|root| !root.is_empty());
                parse_local(root, &parameters, store_dir).map_err(|reason| fail(&reason))
            }
            _ if base.contains("://") => Err(fail("floe knows http://, https:// and file://")),
            root => parse_local(Some(root), &parameters, store_dir).map_err(|r| fail(&r)),
        }
    }
}

fn parse_local(
    root: Option<&str>,
    parameters: &[(String, String)],
    store_dir: Option<StoreDir>,
) -> Result<StoreUri, String> {
    let mut root = root.map(absolute).transpose()?;
    let mut store_dir = store_dir;
    let (mut state, mut real, mut priority, mut trusted) = (None, None, 0, false);
    for (name, value) in parameters {
        match name.as_str() {
            "root" => root = Some(absolute(value)?),
            "store" => {
                store_dir = Some(StoreDir::new(value).map_err(|error| error.to_string())?);
            }
            "state" => state = Some(absolute(value)?),
            "real" => real = Some(absolute(value)?),
            "priority" => priority = parse_priority(value)?,
            "trusted" => trusted = parse_bool("trusted", value)?,
            // Settings of Nix's own store that change nothing for who copies.
            "log"
            | "want-mass-query"
            | "path-info-cache-size"
            | "require-sigs"
            | "system-features" => {}
            other => return Err(format!("unknown parameter {other}")),
        }
    }
    let store_dir = store_dir.unwrap_or_default();
    let mut layout = match root {
        Some(root) => StoreLayout::in_root(&root, store_dir),
        None => StoreLayout::without_root(store_dir),
    };
    layout.state_dir = state.unwrap_or(layout.state_dir);
    layout.real_store_dir = real.unwrap_or(layout.real_store_dir);
    Ok(StoreUri::Local(LocalStoreUri {
        layout,
        priority,
        trusted,
    }))
}

fn parse_http(base: &str, parameters: &[(String, String)]) -> Result<StoreUri, String> {
    let rest = base.split_once("://").map_or("", |(_, rest)| rest);
    if rest.is_empty() || rest.starts_with('/') || base.contains('#') {
        return Err("it names no host, or a fragment".into());
    }
    let mut location = HttpCacheUri {
        url: base.trim_end_matches('/').to_owned(),
        priority: None,
        want_mass_query: None,
        trusted: false,
    };
    for (name, value) in parameters {
        match name.as_str() {
            "priority" => location.priority = Some(parse_priority(value)?),
            "trusted" => location.trusted = parse_bool("trusted", value)?,
            "want-mass-query" => {
                location.want_mass_query = Some(parse_bool("want-mass-query", value)?);
            }
            name if CACHE_SETTINGS.contains(&name) || WRITE_SETTINGS.contains(&name) => {}
            other => return Err(format!("unknown parameter {other}")),
        }
    }
    Ok(StoreUri::Http(location))
}

fn parse_priority(value: &str) -> Result<i32, String> {
    value.parse().map_err(|_| "priority is no number".into())
}

fn parse_bool(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("{name} is neither true nor false")),
    }
}

fn parse_file(directory: &str, parameters: &[(String, String)]) -> Result<StoreUri, String> {
    let mut location = FileCacheUri {
        directory: absolute(&percent_decoded(directory)?)?,
        priority: None,
        trusted: false,
        compression: Compression::Xz,
        level: None,
        secret_keys: Vec::new(),
        write_listings: false,
    };
    for (name, value) in parameters {
        match name.as_str() {
            "priority" => location.priority = Some(parse_priority(value)?),
            "trusted" => location.trusted = parse_bool("trusted", value)?,
            "compression" => {
                location.compression =
                    Compression::parse(value).map_err(|error| error.to_string())?;
                if matches!(
                    location.compression,
                    Compression::Lzma | Compression::Unsupported(_)
                ) {
                    return Err(format!("floe does not write the compression {value}"));
                }
            }
            "compression-level" => {
                let level = value
                    .parse()
                    .map_err(|_| "compression-level is no number")?;
                location.level = (level != -1).then_some(level);
            }
            "secret-key" => location.secret_keys.push(absolute(value)?),
            "secret-keys" => {
                for file in value.split(',').filter(|file| !file.is_empty()) {
                    location.secret_keys.push(absolute(file)?);
                }
            }
            "write-nar-listing" => {
                location.write_listings = parse_bool("write-nar-listing", value)?;
            }
            name if CACHE_SETTINGS.contains(&name) => {}
            other => return Err(format!("unknown parameter {other}")),
        }
    }
    Ok(StoreUri::File(location))
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| format!("{text:?}: {error}"))
}

fn parse_query(query: &str) -> Result<Vec<(String, String)>, String> {
    query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("the parameter {part:?} has no ="))?;
            Ok((percent_decoded(name)?, percent_decoded(value)?))
        })
        .collect()
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let bytes = percent_decode(text)?;
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8"))
}

/// Settings of Nix's caches that change nothing for who moves paths.
const CACHE_SETTINGS: [&str; 7] = [
    "parallel-compression",
    "system-features",
    "want-mass-query",
    "local-nar-cache",
    "index-debug-info",
    "path-info-cache-size",
    "store",
];

/// Settings of Nix's caches for who writes to them, which floe does not do by HTTP: addresses that
/// name them are good to read from.
const WRITE_SETTINGS: [&str; 8] = [
    "compression",
    "compression-level",
    "log-compression",
    "ls-compression",
    "narinfo-compression",
    "secret-key",
    "secret-keys",
    "write-nar-listing",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreUri, Error> {
        StoreUri::parse(text, None, None)
    }

    fn is_trusted(uri: &StoreUri) -> bool {
        match uri {
            StoreUri::Local(store) => store.trusted,
            StoreUri::Http(http) => http.trusted,
            StoreUri::File(file) => file.trusted,
        }
    }

    #[test]
    fn directory_and_root_parameter_name_same_store() {
        let store = StoreUri::from(StoreLayout::in_root(Path::new("/mnt"), StoreDir::default()));
        for text in [
            "/mnt",
            "local?root=/mnt",
            "local?root=%2Fmnt",
            "local:///mnt",
        ] {
            assert_eq!(parse(text).unwrap(), store, "{text}");
        }
    }

    #[test]
    fn http_uri_drops_nix_parameters() {
        let cache = |priority, want_mass_query, trusted| {
            let url = "https://cache.example.org/x".into();
            StoreUri::Http(HttpCacheUri {
                url,
                priority,
                want_mass_query,
                trusted,
            })
        };
        let address = "https://cache.example.org/x/?parallel-compression=1";
        assert_eq!(parse(address).unwrap(), cache(None, None, false));
        let for_writing = "compression=zstd&secret-key=/k&log-compression=br";
        let address = format!("{address}&{for_writing}");
        assert_eq!(parse(&address).unwrap(), cache(None, None, false));
        let address = format!("{address}&priority=-10&want-mass-query=false");
        assert_eq!(
            parse(&address).unwrap(),
            cache(Some(-10), Some(false), false)
        );
        let address = format!("{address}&trusted=1");
        assert!(is_trusted(&parse(&address).unwrap()));
    }

    #[test]
    fn invalid_uri_error_hides_password() {
        let message = parse("https://user:secret@c?x=y").unwrap_err().to_string();
        assert!(!message.contains("secret"), "{message}");
    }

    #[test]
    fn file_cache_uri_parses_parameters() {
        let text = "file:///c?compression=zstd&secret-key=/k&compression-level=19\
                    &write-nar-listing=true&priority=7";
        let StoreUri::File(file) = parse(text).unwrap() else {
            panic!("not a file cache")
        };
        assert_eq!(file.directory, Path::new("/c"));
        assert_eq!(file.compression, Compression::Zstd);
        assert_eq!(file.level, Some(19));
        assert_eq!(file.secret_keys, [Path::new("/k")]);
        assert!(file.write_listings);
        assert_eq!(file.priority, Some(7));
    }

    #[test]
    fn invalid_uri_error_names_the_cause() {
        for (text, part) in [
            ("ssh://host", "http://, https:// and file://"),
            ("file:///c?compresion=xz", "unknown parameter compresion"),
            ("local?rot=/x", "unknown parameter rot"),
            ("daemon", "--root"),
            ("file:///c?compression", "has no ="),
            ("", "empty"),
            ("http://", "no host"),
            ("https://c/x?priorty=3", "unknown parameter priorty"),
            ("file:///c?compression=lzma", "does not write"),
            ("https://c/?priority=high", "no number"),
            ("file:///c?priority=high", "no number"),
            ("local?priority=", "no number"),
            ("https://c/?want-mass-query=2", "neither true nor false"),
            ("/a%?b=%z", "hexadecimal"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
