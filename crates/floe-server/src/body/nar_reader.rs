//! A NAR as a stream, to be compressed.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use floe_store::StoreError;
use floe_store::tree::plan::{NarPlan, PlanPart, TreeRoot, open_tree_root};

/// Reads the NAR of a tree from its beginning to its end.
pub(crate) struct NarReader {
    plan: Arc<NarPlan>,
    root: TreeRoot,
    position: u64,
    open: Option<(usize, OwnedFd)>,
}

impl NarReader {
    /// Errors: the tree is not there any more.
    pub(crate) fn new(plan: Arc<NarPlan>, path: &Path) -> Result<NarReader, StoreError> {
        Ok(NarReader {
            root: open_tree_root(path)?,
            plan,
            position: 0,
            open: None,
        })
    }
}

impl Read for NarReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.plan.part(self.position) {
            None => 0,
            Some(PlanPart::Framing(bytes)) => (&*bytes).read(buffer)?,
            Some(PlanPart::Packed { file, offset, len }) => {
                let wanted = buffer.len().min(usize::try_from(len).unwrap_or(usize::MAX));
                rustix::io::pread(file, buffer.get_mut(..wanted).unwrap_or_default(), offset)?
            }
            Some(PlanPart::Contents { file, offset, len }) => {
                let opened = match self.open.take() {
                    Some((index, opened)) if index == file => opened,
                    _ => self
                        .plan
                        .open(&mut self.root, file)
                        .map_err(io::Error::other)?,
                };
                let wanted = buffer.len().min(usize::try_from(len).unwrap_or(usize::MAX));
                let part = buffer.get_mut(..wanted).unwrap_or_default();
                let read = rustix::io::pread(&opened, part, offset)?;
                if read == 0 && wanted > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.open = Some((file, opened));
                read
            }
        };
        self.position += read as u64;
        Ok(read)
    }
}
