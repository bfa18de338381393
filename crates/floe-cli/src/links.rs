//! Symbolic links into a store as arguments, such as `./result`.

use std::fs;
use std::path::{self, PathBuf};

use floe_format::StoreDir;

/// Replaces each argument that is a symbolic link into the store directory by the path to which the
/// link leads. Other arguments stay as they are.
///
/// As in Nix, only the last component may be a link. The target need not exist, because a link into
/// a store below a root directory leads to the place that the path has inside of the root.
pub(crate) fn follow(arguments: &[String], dir: &StoreDir) -> Vec<String> {
    let followed = arguments.iter();
    let followed = followed.map(|text| follow_one(text, dir).unwrap_or_else(|| text.clone()));
    followed.collect()
}

fn follow_one(text: &str, dir: &StoreDir) -> Option<String> {
    // A text without a slash is a base name or a hash part, also if there is such a file.
    if !text.contains('/') {
        return None;
    }
    // Without the slash at the end, through which the system would follow the link.
    let mut path: PathBuf = path::absolute(text).ok()?.components().collect();
    for _ in 0..LINKS_MAX {
        let text = path.to_str()?;
        if dir.to_store_path(text).is_ok() {
            return Some(text.to_owned());
        }
        let target = fs::read_link(&path).ok()?;
        path = path.parent()?.join(target);
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
    fn link_into_store_is_followed_unless_a_cycle() {
        let place = tempfile::tempdir().unwrap();
        let dir = StoreDir::default();
        let target = format!("/nix/store/{}-x", "0".repeat(32));
        let link = |name: &str, target: &str| {
            symlink(target, place.path().join(name)).unwrap();
            place.path().join(name).display().to_string()
        };
        link("second", &target);
        let first = link("first", "./second");
        let file = link("file", &format!("{target}/bin/x"));
        let cycle = link("cycle", "cycle");
        let elsewhere = link("elsewhere", "/etc");
        let inside = link("inside", &format!("{target}/../../etc"));
        let given = [&first, &format!("{first}/"), &file, &target].map(ToString::to_string);
        let in_file = format!("{target}/bin/x");
        assert_eq!(
            follow(&given, &dir),
            [&target, &target, &in_file, &target].map(ToString::to_string)
        );
        let kept = [cycle, elsewhere, inside, "first".into(), "./absent".into()];
        assert_eq!(follow(&kept, &dir), kept);
    }
}
