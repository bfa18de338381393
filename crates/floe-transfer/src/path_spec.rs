//! A path as the user names it.

use floe_format::drv_name::name_and_version;
use floe_format::store_path::StorePathError;
use floe_format::{HashPart, StoreDir, StorePath};
use floe_store::StoreReader;

use crate::error::Error;

/// A requested path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathSpec {
    /// A store path.
    Path(StorePath),
    /// Only the hash part of a store path.
    HashPart(HashPart),
}

impl PathSpec {
    /// Parses a full store path (or a file inside one), a base name or a hash part.
    pub fn parse(text: &str, store_dir: &StoreDir) -> Result<PathSpec, Error> {
        if let Some(part) = HashPart::parse(text) {
            return Ok(PathSpec::HashPart(part));
        }
        let parsed = if text.starts_with('/') {
            store_dir.to_store_path(text)
        } else {
            StorePath::parse(text)
        };
        parsed
            .map(PathSpec::Path)
            .map_err(|error| invalid_path(text, reason(text, &error, store_dir), store_dir))
    }

    /// Returns the store path. A hash part stands for the valid path of the store that has it.
    ///
    /// Errors: [`Error::NotFound`], and those of the database.
    pub fn find_in_store(self, store: &StoreReader) -> Result<StorePath, Error> {
        let part = match self {
            PathSpec::Path(path) => return Ok(path),
            PathSpec::HashPart(part) => part,
        };
        let found = store.query_path_from_hash_part(part)?;
        found.ok_or_else(|| Error::NotFound {
            path: part.to_string(),
            sources: vec![store.layout().real_store_dir.display().to_string()],
        })
    }

    /// Returns the hash part.
    pub fn hash_part(&self) -> HashPart {
        match self {
            PathSpec::Path(path) => path.hash_part(),
            PathSpec::HashPart(part) => *part,
        }
    }

    /// Whether the user means this path.
    pub fn matches(&self, path: &StorePath) -> bool {
        match self {
            PathSpec::Path(wanted) => wanted == path,
            PathSpec::HashPart(part) => *part == path.hash_part(),
        }
    }

    /// Returns the base name of the path, or the hash part if only that is known.
    pub fn text(&self) -> String {
        match self {
            PathSpec::Path(path) => path.to_string(),
            PathSpec::HashPart(part) => part.to_string(),
        }
    }
}

/// Makes the error for a text that is not a store path.
pub(crate) fn invalid_path(text: &str, reason: String, store_dir: &StoreDir) -> Error {
    Error::InvalidStorePath {
        text: text.to_owned(),
        reason,
        store_dir: store_dir.as_str().to_owned(),
    }
}

/// Returns why a text is not a path spec.
fn reason(text: &str, error: &StorePathError, store_dir: &StoreDir) -> String {
    let is_elsewhere = format!("it is not in {store_dir}");
    let base_name = text.rsplit('/').next().unwrap_or_default();
    if base_name.starts_with("HASH-") || base_name == "HASH" {
        return "HASH stands for the 32 characters of a store path".into();
    }
    match error {
        StorePathError::NameCharacter {
            character: character @ ('^' | '!'),
            ..
        } => format!(
            "the text after {character:?} selects an output, and only floe copy, install and push \
             accept that, for a derivation (.drv)"
        ),
        StorePathError::NotInStore { .. } => is_elsewhere,
        StorePathError::NoHashPart(_) if text.contains('/') && !text.contains('#') => is_elsewhere,
        StorePathError::NoHashPart(_) if is_package(text) => package_reason(text),
        StorePathError::NoHashPart(_) => error.reason(),
        error => error.reason(),
    }
}

/// Returns why a package is not a path spec, and how to find its path.
fn package_reason(text: &str) -> String {
    let why = "it names a package, and floe does not evaluate Nix expressions";
    let package = text.strip_prefix("nixpkgs#").unwrap_or(text);
    // The spelling of nix-env.
    let package = package.strip_prefix("nixpkgs.").unwrap_or(package);
    // Other flakes are not built by hydra.nixos.org, and a shell must not expand anything.
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.+@".contains(c);
    if !package.chars().all(is_word) {
        return format!(
            "{why}; on a machine with Nix, `nix build --print-out-paths INSTALLABLE` prints its \
             path"
        );
    }
    let (name, _) = name_and_version(package.split('@').next().unwrap_or(package));
    let architecture = std::env::consts::ARCH;
    format!(
        "{why}. `curl -fsSLH 'Accept: application/json' \
         https://hydra.nixos.org/job/nixos/unstable/nixpkgs.{name}.{architecture}-linux/latest | \
         grep -o '\"path\":\"[^\"]*'` prints its paths"
    )
}

/// Whether a text looks like a package: a name, or an installable such as `nixpkgs#hello`.
fn is_package(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+#:/?=@".contains(c);
    let begins_with_letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_other = [".drv", ".org", ".com", ".net", ".io"];
    if is_other.iter().any(|end| text.ends_with(end)) {
        return false;
    }
    text.contains('#') || begins_with_letter && text.chars().all(is_allowed) && text.len() < 32
}

/// The largest number of paths in a closure, unless the user sets another one. The largest known
/// closures have less than half. A source that exceeds it invents paths.
pub const CLOSURE_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_spec_matches_only_the_path_that_it_names() {
        let path = |part: char, name: &str| {
            StorePath::parse(&format!("{}-{name}", part.to_string().repeat(32))).unwrap()
        };
        let dir = StoreDir::default();
        let by_path = PathSpec::parse(path('a', "x").as_str(), &dir).unwrap();
        assert!(by_path.matches(&path('a', "x")));
        assert!(!by_path.matches(&path('a', "y")));
        let by_hash_part = PathSpec::parse(&"a".repeat(32), &dir).unwrap();
        assert!(by_hash_part.matches(&path('a', "y")));
        assert!(!by_hash_part.matches(&path('b', "y")));
    }

    #[test]
    fn path_spec_with_file_names_the_path_unless_it_leaves() {
        let dir = StoreDir::default();
        let base_name = format!("{}-x", "a".repeat(32));
        let path = StorePath::parse(&base_name).unwrap();
        let parse = |text: String| PathSpec::parse(&text, &dir);
        for suffix in ["/bin/jq", "/", "/./bin", "/bin/../lib"] {
            let spec = parse(format!("/nix/store/{base_name}{suffix}")).unwrap();
            assert_eq!(spec, PathSpec::Path(path.clone()), "{suffix}");
        }
        for suffix in ["/../../etc", "/..", "/bin/../../x"] {
            assert!(parse(format!("/nix/store/{base_name}{suffix}")).is_err());
            assert!(parse(format!("{base_name}{suffix}")).is_err());
        }
    }
}
