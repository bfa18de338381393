//! `floe cat`: prints files in paths.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::bail;
use floe_transfer::FoundFile;

use crate::requested_paths::OpenSource;
use crate::stdout::BinaryOutput;
use crate::store_files::{LINKS_MAX, StoreFile};
use args::CatArgs;

pub(crate) fn run(args: &CatArgs) -> anyhow::Result<()> {
    let (open, files) = OpenSource::with_files(&args.query, &args.files)?;
    let mut output = BinaryOutput::new();
    for file in files {
        cat(&open, file, &mut output)?;
    }
    output.finish()
}

/// Writes a file. Follows symlinks to it.
fn cat(open: &OpenSource, file: StoreFile, output: &mut BinaryOutput) -> anyhow::Result<()> {
    let mut current = file.clone();
    for _ in 0..=LINKS_MAX {
        let narinfo = open.narinfo_of(&mut current)?;
        let source = open.source();
        let mut write = |chunk: &[u8]| output.write(chunk);
        match source.read_file(&narinfo, &current.names(), &mut write) {
            Ok(FoundFile::Contents) => return Ok(()),
            Ok(FoundFile::Link { depth, target }) => {
                let link = (depth, target.as_slice());
                current = current.follow(&narinfo.info.path, link, source.store_dir())?;
            }
            Ok(FoundFile::Directory) => bail!(
                "cannot print {}: it is a directory; try floe ls",
                current.text()
            ),
            Ok(FoundFile::Absent) => {
                bail!("cannot print {}: the path has no such file", current.text())
            }
            Err(error) => return output.fail(error),
        }
    }
    bail!(
        "cannot print {}: it is behind more than {LINKS_MAX} symlinks",
        file.text()
    );
}
