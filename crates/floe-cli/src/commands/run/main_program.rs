//! The program that `floe run PATH` starts.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use floe_format::StorePath;
use floe_format::drv_name::name_and_version;
use floe_store::StoreLayout;

/// Returns the program of a path in the store directory: the named one, the only one, or the one
/// with the path's name.
///
/// Errors: there is no such program, or there are several.
pub(super) fn main_program(
    layout: &StoreLayout,
    path: &StorePath,
    name: Option<&str>,
) -> anyhow::Result<PathBuf> {
    let shown = layout.store_dir.full_path(path);
    if fs::symlink_metadata(layout.real_path(path)).is_err() {
        bail!(
            "cannot run {shown}: its files are missing; fetch them again by floe verify --repair, \
             for the same store"
        );
    }
    let directory = real_directory(layout, layout.real_path(path).join("bin"));
    let programs = match programs(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        programs => programs
            .with_context(|| format!("cannot list the programs in {}", directory.display()))?,
    };
    let (own_name, _) = name_and_version(path.name());
    let chosen = match (name, &*programs) {
        (Some(name), all) if all.iter().any(|program| program == name) => name,
        (None, all) if all.iter().any(|program| program == own_name) => own_name,
        (Some(name), all) => bail!(
            "cannot run {name} of {shown}: there is no such program; {}",
            named(all)
        ),
        (None, []) => bail!(
            "cannot run {shown}: it has no directory bin with programs; name one of its files, as \
             in floe run {shown}/DIRECTORY/PROGRAM"
        ),
        (None, all) => match without_aliases(&directory, all).as_slice() {
            [only] => only,
            _ => bail!(
                "cannot choose a program of {shown}: none has its name; use --program NAME; {}",
                named(all)
            ),
        },
    };
    Ok(Path::new(&shown).join("bin").join(chosen))
}

fn named(programs: &[String]) -> String {
    let shown = programs.iter().take(NAMES_MAX).map(String::as_str);
    let shown: Vec<&str> = shown.collect();
    let more = match programs.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match &*shown {
        [] => "its directory bin has no programs".into(),
        names => format!("its programs are {}{more}", names.join(", ")),
    }
}

const NAMES_MAX: usize = 20;

/// Follows a link into the store to its real place: in a store below a root directory, its target
/// exists only where the program runs.
fn real_directory(layout: &StoreLayout, mut directory: PathBuf) -> PathBuf {
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&directory) else {
            break;
        };
        directory = match target.strip_prefix(layout.store_dir.as_str()) {
            Ok(inside) => layout.real_store_dir.join(inside),
            Err(_) => directory.with_file_name("").join(target),
        };
    }
    directory
}

/// The kernel follows as many links in one path.
const LINKS_MAX: usize = 40;

/// Leaves out links to other programs of the same directory.
fn without_aliases<'a>(directory: &Path, programs: &'a [String]) -> Vec<&'a str> {
    let is_alias = |name: &str| {
        let target = fs::read_link(directory.join(name));
        let target = target
            .ok()
            .and_then(|target| target.into_os_string().into_string().ok());
        target.is_some_and(|target| target != name && programs.contains(&target))
    };
    let names = programs.iter().map(String::as_str);
    names.filter(|name| !is_alias(name)).collect()
}

/// Returns the names of the programs in a directory, sorted, without those that other programs
/// wrap: their names begin with a dot.
fn programs(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        // The target of a link may exist only where the program runs.
        let is_program = metadata.is_symlink()
            || metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        match entry.file_name().into_string() {
            Ok(name) if is_program && !name.starts_with('.') => names.push(name),
            _ => {}
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the file in the store directory that a text names inside of a path, unless it is a
/// directory.
pub(super) fn file_in(layout: &StoreLayout, path: &StorePath, text: &str) -> Option<PathBuf> {
    let inside = text.strip_prefix(&layout.store_dir.full_path(path))?;
    let inside = inside.trim_matches('/');
    let is_directory = layout.real_path(path).join(inside).is_dir();
    (!inside.is_empty() && !is_directory).then(|| PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use floe_format::StoreDir;

    use super::*;

    #[test]
    fn programs_are_found_through_links_into_the_store() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        let path = |name: &str| StorePath::parse(&format!("{}-{name}", "0".repeat(32))).unwrap();
        let (tool, environment) = (path("tool"), path("environment"));
        fs::create_dir_all(layout.real_path(&tool).join("bin")).unwrap();
        let program = layout.real_path(&tool).join("bin/tool");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o555)).unwrap();
        fs::create_dir_all(layout.real_path(&environment)).unwrap();
        let target = format!("{}/bin", layout.store_dir.full_path(&tool));
        symlink(target, layout.real_path(&environment).join("bin")).unwrap();
        let chosen = main_program(&layout, &environment, None).unwrap();
        let expected = format!("{}/bin/tool", layout.store_dir.full_path(&environment));
        assert_eq!(chosen, PathBuf::from(expected));
    }

    /// A store path with files in `bin`, and their modes.
    fn choose(files: &[(&str, u32)], name: Option<&str>) -> Result<String, String> {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        let path = StorePath::parse(&format!("{}-jq-tool-1.6-bin", "0".repeat(32))).unwrap();
        let bin = layout.real_path(&path).join("bin");
        fs::create_dir_all(&bin).unwrap();
        for (name, mode) in files {
            if *name == "alias" {
                symlink("z", bin.join(name)).unwrap();
                continue;
            }
            fs::write(bin.join(name), "").unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(*mode)).unwrap();
        }
        let chosen = main_program(&layout, &path, name);
        let chosen = chosen.map_err(|error| error.to_string())?;
        Ok(chosen.file_name().unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn program_is_the_only_one_or_has_the_name() {
        let program = |name| (name, 0o555);
        assert_eq!(choose(&[program("x")], None).unwrap(), "x");
        let hidden = [program("x"), program(".x-wrapped"), ("readme", 0o444)];
        assert_eq!(choose(&hidden, None).unwrap(), "x");
        let several = [program("a"), program("jq-tool"), program("z")];
        assert_eq!(choose(&several, None).unwrap(), "jq-tool");
        assert_eq!(choose(&several, Some("z")).unwrap(), "z");
        let error = choose(&several, Some("y")).unwrap_err();
        assert!(error.contains("a, jq-tool, z"), "{error}");
        let link = ("alias", 0);
        assert_eq!(choose(&[link, program("z")], None).unwrap(), "z");
        let error = choose(&[link, program("y"), program("z")], None).unwrap_err();
        assert!(error.contains("alias, y, z"), "{error}");
        let error = choose(&[program("a"), program("z")], None).unwrap_err();
        assert!(error.contains("--program"), "{error}");
        assert!(choose(&[], None).is_err());
    }
}
