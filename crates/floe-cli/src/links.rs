//! Links into a store as arguments, such as `./result` and `~/.nix-profile/bin/jq`, and the real
//! places of paths in a store below a root directory.

use std::fs;
use std::path::{self, Component, Path, PathBuf};

use floe_format::{HashPart, StoreDir, StorePath};
use floe_store::StoreLayout;

use crate::exit::UsageError;

/// The names of a store: the store directory that paths name, and the directory with the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreNames {
    pub(crate) store_dir: StoreDir,
    /// The directory with the files, if it is another one.
    pub(crate) real_store_dir: Option<PathBuf>,
}

impl From<&StoreLayout> for StoreNames {
    fn from(layout: &StoreLayout) -> StoreNames {
        StoreNames {
            store_dir: layout.store_dir.clone(),
            real_store_dir: path::absolute(&layout.real_store_dir).ok(),
        }
    }
}

impl StoreNames {
    /// Replaces each argument that names a file through a link into the store, or by its real
    /// place, by the name of the file in the store directory. Other arguments stay as they are.
    ///
    /// The target of a link need not exist, because a link into a store below a root directory
    /// leads to the place that the path has inside of the root.
    pub(crate) fn follow(&self, arguments: &[String]) -> Vec<String> {
        let followed = arguments.iter();
        let followed = followed.map(|text| self.follow_one(text).unwrap_or_else(|| text.clone()));
        followed.collect()
    }

    /// Returns the name in the store directory, or `None` if the argument is no such file.
    pub(crate) fn follow_one(&self, text: &str) -> Option<String> {
        // Such a text is a base name or a hash part, also if there is such a file.
        if StorePath::parse(text).is_ok() || HashPart::parse(text).is_some() {
            return None;
        }
        // Without the slash at the end, through which the system would follow the link.
        let mut path: PathBuf = path::absolute(text).ok()?.components().collect();
        for _ in 0..LINKS_MAX {
            if let Some(in_store) = self.in_store(&path) {
                return Some(in_store);
            }
            path = follow_first_link(&path)?;
        }
        None
    }

    /// Returns the name in the store directory of a file in the store. Links are not followed.
    pub(crate) fn in_store(&self, path: &Path) -> Option<String> {
        let moved = self.real_store_dir.as_ref().and_then(|real| {
            let rest = path.strip_prefix(real).ok()?;
            Some(Path::new(self.store_dir.as_str()).join(rest))
        });
        let in_store = |path: &Path| {
            let text = path.to_str()?;
            self.store_dir
                .to_store_path(text)
                .is_ok()
                .then(|| text.to_owned())
        };
        in_store(path).or_else(|| in_store(&moved?))
    }
}

/// Checks that an argument which can only be a file of this machine exists.
///
/// Errors: it does not exist.
pub(crate) fn check_exists(text: &str, store_dir: &StoreDir) -> Result<(), UsageError> {
    let is_file = text.starts_with(['/', '.', '~']) && text.contains('/');
    let is_elsewhere = !Path::new(text).starts_with(store_dir.as_str());
    if is_file && is_elsewhere && fs::symlink_metadata(text).is_err() {
        return Err(UsageError(format!(
            "cannot use {text}: there is no such file"
        )));
    }
    Ok(())
}

/// Returns the path of a file in the working directory, which the user may mean by a bare name.
/// Errors then do not take it for a package.
pub(crate) fn existing_file(text: &str) -> Option<String> {
    let is_name = StorePath::parse(text).is_err()
        && HashPart::parse(text).is_none()
        && ![".", ".."].contains(&text);
    let is_file = is_name && !text.contains('/') && fs::symlink_metadata(text).is_ok();
    is_file.then(|| format!("./{text}"))
}

/// Replaces the first component that is a symbolic link by its target, and removes `.` and `..` of
/// the components before it. Returns `None` if there is no link.
fn follow_first_link(path: &Path) -> Option<PathBuf> {
    let mut before = PathBuf::new();
    let mut components = path.components();
    while let Some(component) = components.next() {
        match component {
            Component::CurDir => continue,
            Component::ParentDir => {
                before.pop();
                continue;
            }
            _ => before.push(component),
        }
        if let Ok(target) = fs::read_link(&before) {
            before.pop();
            before.push(target);
            // An empty path would add a slash.
            before.extend(components);
            return Some(before);
        }
    }
    None
}

/// The kernel follows as many links in one path.
const LINKS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_into_store_are_followed_unless_cycles() {
        let place = tempfile::tempdir().unwrap();
        let names = StoreNames {
            real_store_dir: Some("/mnt/nix/store".into()),
            ..StoreNames::default()
        };
        let target = format!("/nix/store/{}-x", "0".repeat(32));
        let link = |name: &str, target: &str| {
            symlink(target, place.path().join(name)).unwrap();
            place.path().join(name).display().to_string()
        };
        link("second", &target);
        let first = link("first", "./second");
        let file = link("file", &format!("{target}/bin/x"));
        let directory = link("directory", ".");
        let cycle = link("cycle", "cycle");
        let elsewhere = link("elsewhere", "/etc");
        let inside = link("inside", &format!("{target}/../../etc"));
        let followed = [
            (first.clone(), ""),
            (format!("{first}/"), ""),
            (file, "/bin/x"),
            (target.clone(), ""),
            (format!("{first}/bin/x"), "/bin/x"),
            (
                format!("{directory}/../{}/first/lib", place_name(place.path())),
                "/lib",
            ),
            (format!("/mnt{target}/bin/x"), "/bin/x"),
        ];
        for (given, rest) in followed {
            let expected = format!("{target}{rest}");
            assert_eq!(
                names.follow(std::slice::from_ref(&given)),
                [expected],
                "{given}"
            );
        }
        let kept = [cycle, elsewhere, inside, "first".into(), "./absent".into()];
        assert_eq!(names.follow(&kept), kept);
    }

    fn place_name(place: &Path) -> String {
        place.file_name().unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn base_names_and_hash_parts_are_no_files() {
        let hash_part = "0".repeat(32);
        let given = [format!("{hash_part}-x"), hash_part];
        assert_eq!(StoreNames::default().follow(&given), given);
    }
}
