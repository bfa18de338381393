//! Files in paths of a store or cache, as the user names them.

use anyhow::{Context as _, bail};
use floe_format::nar::layout::{FoundNode, Node};
use floe_format::{NarInfo, StoreDir, StorePath};
use floe_transfer::{PathSpec, Source};

use crate::args::{PathArgs, QueryArgs};
use crate::messages::escaped;
use crate::requested_paths::OpenSource;

/// A file or directory in a path: `PATH`, `PATH/FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreFile {
    spec: PathSpec,
    /// The names from the path to the file.
    names: Vec<Vec<u8>>,
}

impl StoreFile {
    /// Parses an absolute name of a file in the store, or a base name or a hash part with a file
    /// behind it.
    ///
    /// Errors: the text has another form.
    fn parse(text: &str, dir: &StoreDir) -> anyhow::Result<StoreFile> {
        if let Ok((path, names)) = dir.to_file_in_path(text) {
            let names = names.into_iter().map(|name| name.as_bytes().to_vec());
            return Ok(StoreFile {
                spec: PathSpec::Path(path),
                names: names.collect(),
            });
        }
        let (path, file) = match text.split_once('/') {
            Some(split) if !text.starts_with(['/', '.', '~']) => split,
            _ => (text, ""),
        };
        let mut names = Vec::new();
        for name in file.split('/') {
            match name {
                "" | "." => {}
                ".." if names.pop().is_some() => {}
                ".." => bail!("cannot use {text}: it leads out of the path"),
                name => names.push(name.as_bytes().to_vec()),
            }
        }
        let spec = PathSpec::parse(path, dir)?;
        Ok(StoreFile { spec, names })
    }

    /// The names from the path to the file.
    pub(crate) fn names(&self) -> Vec<&[u8]> {
        self.names.iter().map(Vec::as_slice).collect()
    }

    /// The last name, or the name of the path.
    pub(crate) fn file_name(&self) -> String {
        match self.names.last() {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => self.spec.text(),
        }
    }

    /// Returns the file for a message.
    pub(crate) fn text(&self) -> String {
        let mut text = self.spec.text();
        for name in &self.names {
            text.push('/');
            text += &String::from_utf8_lossy(name);
        }
        escaped(text)
    }

    /// Returns the file without its first `..`, which a symlink has brought in, or with the symlink
    /// before it followed. Returns `None` if it has none.
    ///
    /// Errors: it leads out of the store; there is no directory before the `..`.
    fn without_parent(
        &self,
        narinfo: &NarInfo,
        source: &dyn Source,
    ) -> anyhow::Result<Option<StoreFile>> {
        let Some(parent) = self.names.iter().position(|name| name == b"..") else {
            return Ok(None);
        };
        let path = &narinfo.info.path;
        let dir = source.store_dir();
        if parent == 0 {
            // Beside the path.
            let name = self.names.get(1).map(|name| String::from_utf8_lossy(name));
            let beside = name.and_then(|name| StorePath::parse(&name).ok());
            let outside = || format!("cannot find {}: it leads out of the store", self.text());
            return Ok(Some(StoreFile {
                spec: PathSpec::Path(beside.with_context(outside)?),
                names: self.names[2..].to_vec(),
            }));
        }
        let tree = source.tree(narinfo)?;
        match tree.find(&self.names()[..parent]) {
            FoundNode::Link { depth, target } => self.follow(path, (depth, target), dir).map(Some),
            FoundNode::Node(Node::Symlink { target }) => {
                self.follow(path, (parent, target), dir).map(Some)
            }
            FoundNode::Node(Node::Directory { .. }) => {
                let mut above = self.clone();
                above.names.drain(parent - 1..=parent);
                Ok(Some(above))
            }
            _ => bail!("cannot find {}: there is no such directory", self.text()),
        }
    }

    /// Returns the file to which a symlink on the way leads. `depth` names lead to the symlink in
    /// `path`.
    ///
    /// Errors: it leads out of the store.
    pub(crate) fn follow(
        &self,
        path: &StorePath,
        (depth, target): (usize, &[u8]),
        dir: &StoreDir,
    ) -> anyhow::Result<StoreFile> {
        let target_text = String::from_utf8_lossy(target);
        let mut full: Vec<&[u8]> = Vec::new();
        let own = dir.full_path(path);
        if !target.starts_with(b"/") {
            full.extend(own.as_bytes().split(|byte| *byte == b'/'));
            full.extend(self.names[..depth].iter().map(Vec::as_slice));
            full.pop();
        }
        full.retain(|name| !name.is_empty());
        let rest = self.names[depth..].iter().map(Vec::as_slice);
        // These directories are no symlinks, so that `..` leads to those above them.
        let mut known_len = full.len();
        for name in target.split(|byte| *byte == b'/').chain(rest) {
            match name {
                b"" | b"." => {}
                b".." if full.len() == known_len => {
                    full.pop();
                    known_len = full.len();
                }
                name => full.push(name),
            }
        }
        let store: Vec<&[u8]> = dir
            .as_str()
            .as_bytes()
            .split(|byte| *byte == b'/')
            .collect();
        let inside = full.strip_prefix(&store[1..]).and_then(<[_]>::split_first);
        let found = inside.and_then(|(name, names)| {
            let path = StorePath::parse(std::str::from_utf8(name).ok()?).ok()?;
            Some((path, names))
        });
        let (path, names) = found.with_context(|| {
            format!(
                "cannot follow the symlink in {} to {}: it leads out of the store",
                self.text(),
                escaped(target_text)
            )
        })?;
        Ok(StoreFile {
            spec: PathSpec::Path(path),
            names: names.iter().map(|name| name.to_vec()).collect(),
        })
    }
}

impl OpenSource {
    /// Opens the store or cache of the arguments, and parses files in its paths.
    ///
    /// Errors: those of the arguments and of the store.
    pub(crate) fn with_files(
        args: &QueryArgs,
        files: &[String],
    ) -> anyhow::Result<(OpenSource, Vec<StoreFile>)> {
        let open = OpenSource::open(&args.source, &args.local, &args.options)?;
        let paths = PathArgs::new(false, false, files.to_vec());
        let texts = open.requested_texts(&paths, &args.names)?;
        let dir = open.source().store_dir();
        let files = texts.iter().map(|text| StoreFile::parse(text, dir));
        let files = files.collect::<anyhow::Result<_>>()?;
        Ok((open, files))
    }

    /// Returns the narinfo of the path that a file is in. Removes `..` from the file.
    ///
    /// Errors: the path does not exist; those of the store.
    pub(crate) fn narinfo_of(&self, file: &mut StoreFile) -> anyhow::Result<NarInfo> {
        for _ in 0..=LINKS_MAX {
            let specs = [file.spec.clone()];
            let found = self.query(&specs, false)?.complete()?;
            let narinfo = found.into_values().next();
            let narinfo = narinfo.with_context(|| format!("cannot find {}", file.text()))?;
            match file.without_parent(&narinfo, self.source())? {
                Some(other) => *file = other,
                None => return Ok(narinfo),
            }
        }
        bail!(
            "cannot find {}: it is behind more than {LINKS_MAX} symlinks",
            file.text()
        );
    }
}

/// How many symlinks lead to one file: as many as the kernel follows.
pub(crate) const LINKS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-a";

    #[test]
    fn files_follow_paths_of_each_form() {
        let dir = StoreDir::default();
        let text = |text: &str| StoreFile::parse(text, &dir).map(|file| file.text());
        assert_eq!(
            text(&format!("/nix/store/{A}/bin//./x")).unwrap(),
            format!("{A}/bin/x")
        );
        assert_eq!(
            text(&format!("{A}/lib/../bin/x/")).unwrap(),
            format!("{A}/bin/x")
        );
        assert_eq!(
            text(&format!("{}/x", &A[..32])).unwrap(),
            format!("{}/x", &A[..32])
        );
        assert_eq!(text(A).unwrap(), A);
        for other in ["", "x/y", &format!("{A}/.."), "/etc/passwd", "/nix/store"] {
            assert!(text(other).is_err(), "{other}");
        }
    }

    #[test]
    fn symlinks_lead_to_files_in_the_store_only() {
        let dir = StoreDir::default();
        let other = format!("{}-b", "0".repeat(32));
        let file = StoreFile::parse(&format!("{A}/lib/link/x"), &dir).unwrap();
        let path = StorePath::parse(A).unwrap();
        let follow = |target: &str| {
            let followed = file.follow(&path, (2, target.as_bytes()), &dir);
            followed.map(|file| file.text()).ok()
        };
        let in_a = |rest: &str| Some(format!("{A}/{rest}"));
        assert_eq!(follow("d"), in_a("lib/d/x"));
        assert_eq!(follow("../d/./e/"), in_a("d/e/x"));
        assert_eq!(
            follow(&format!("/nix/store/{other}")),
            Some(format!("{other}/x"))
        );
        assert_eq!(
            follow(&format!("../../{other}/y")),
            Some(format!("{other}/y/x"))
        );
        for outside in ["/etc", "../../../../etc", "..//..", "/", "/nix/store"] {
            assert_eq!(follow(outside), None, "{outside}");
        }
    }
}
