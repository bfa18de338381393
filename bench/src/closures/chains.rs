//! A closure whose installation is all round trips: chains of tiny paths below one root.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The number of paths of the closure that a network row installs.
pub(super) const PATHS: usize = Shape::ROUND_TRIPS.paths();

/// The number and the length of the chains.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    chains: usize,
    length: usize,
}

impl Shape {
    /// A closure of 301 paths in 30 levels.
    pub(super) const ROUND_TRIPS: Shape = Shape {
        chains: 10,
        length: 30,
    };
    /// A closure of 20,000 paths, of which Nix accepts the references of the root.
    pub(super) const TINY: Shape = Shape {
        chains: 199,
        length: 101,
    };

    const fn paths(self) -> usize {
        self.chains * self.length + 1
    }
}

/// Makes the store and a signed cache in `directory`, if they do not exist, in the form of
/// bench/corpus/make-corpus. `nix` makes commands of Nix.
pub(super) fn make(directory: &Path, shape: Shape, nix: &dyn Fn(&str) -> Command) -> Result<()> {
    if directory.join("stats.json").exists() {
        return Ok(());
    }
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let store = directory.join("store");
    let mut import = nix("nix-store");
    import.arg("--store").arg(&store).arg("--import");
    let mut child = import.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut stdin = child.stdin.take().context("nix-store has no stdin")?;
    stdin
        .write_all(&export(shape))
        .context("cannot write to nix-store --import")?;
    drop(stdin);
    ensure!(child.wait()?.success(), "nix-store --import failed");
    let write = |name: &str, text: &str| fs::write(directory.join(name), text);
    let paths: Vec<String> = nodes(shape).into_iter().map(|node| node.path).collect();
    write("paths", &(paths.join("\n") + "\n"))?;
    write("root-path", &paths[shape.paths() - 1])?;
    let (secret, public) = (directory.join("key.sec"), directory.join("key.pub"));
    let mut keys = nix("nix-store");
    keys.args(["--generate-binary-cache-key", "chains-1"])
        .arg(&secret)
        .arg(&public);
    ensure!(keys.status()?.success(), "cannot generate a key");
    let cache = directory.join("cache-zstd");
    let url = format!(
        "file://{}?compression=zstd&secret-key={}",
        cache.display(),
        secret.display()
    );
    let mut copy = nix("nix");
    copy.args(["copy", "--no-check-sigs", "--from"])
        .arg(&store)
        .args(["--to", &url, &paths[shape.paths() - 1]]);
    ensure!(copy.status()?.success(), "cannot copy to {url}");
    // Written last, so that an incomplete closure is made again.
    write("stats.json", "{}\n")?;
    Ok(())
}

struct Node {
    path: String,
    references: Vec<String>,
}

/// All paths, references before their referrers, the root last.
fn nodes(shape: Shape) -> Vec<Node> {
    // Nix does not recompute these hash parts, because the paths have no content address.
    let path = |number: usize| format!("/nix/store/{number:032}-link-{number}");
    let mut nodes = Vec::new();
    for chain in 0..shape.chains {
        for link in 0..shape.length {
            let number = chain * shape.length + link + 1;
            let references = (link > 0).then(|| path(number - 1)).into_iter().collect();
            nodes.push(Node {
                path: path(number),
                references,
            });
        }
    }
    let heads = (1..=shape.chains)
        .map(|chain| path(chain * shape.length))
        .collect();
    nodes.push(Node {
        path: path(shape.paths()),
        references: heads,
    });
    nodes
}

/// The closure in the format of `nix-store --export`.
fn export(shape: Shape) -> Vec<u8> {
    let mut out = Vec::new();
    for node in nodes(shape) {
        out.extend(1_u64.to_le_bytes());
        let contents = format!("{}\n", node.references.join("\n"));
        for word in [
            "nix-archive-1",
            "(",
            "type",
            "regular",
            "contents",
            &contents,
            ")",
        ] {
            push_string(&mut out, word);
        }
        out.extend(EXPORT_MAGIC.to_le_bytes());
        push_string(&mut out, &node.path);
        out.extend((node.references.len() as u64).to_le_bytes());
        for reference in &node.references {
            push_string(&mut out, reference);
        }
        // No deriver and no legacy signature.
        push_string(&mut out, "");
        out.extend(0_u64.to_le_bytes());
    }
    out.extend(0_u64.to_le_bytes());
    out
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
    out.resize(out.len().next_multiple_of(8), 0);
}

/// The magic number between a NAR and its metadata in the export format.
const EXPORT_MAGIC: u64 = 0x4558_494e;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_refers_to_the_head_of_every_chain() {
        let shape = Shape::ROUND_TRIPS;
        let nodes = nodes(shape);
        assert_eq!(nodes.len(), PATHS);
        assert_eq!(nodes[PATHS - 1].references.len(), shape.chains);
        let ends = nodes.iter().filter(|node| node.references.is_empty());
        assert_eq!(ends.count(), shape.chains);
        assert_eq!(export(shape).len() % 8, 0);
    }
}
