//! A range of a NAR, produced from its plan while it is sent.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_store::StoreError;
use floe_store::tree::plan::{NarPlan, PlanPart, TreeRoot, open_tree_root};

use super::{CHUNK_LEN_MAX, SENDFILE_MIN};

/// The bytes from `position` to `end` of the NAR of a tree.
#[derive(Debug)]
pub(crate) struct NarRange {
    plan: Arc<NarPlan>,
    tree: LazyTree,
    position: u64,
    end: u64,
}

/// The tree at `path`, opened when the first file is.
#[derive(Debug)]
struct LazyTree {
    path: PathBuf,
    root: Option<TreeRoot>,
    /// The file of which a part is sent, with its number in the plan.
    open: Option<(usize, OwnedFd)>,
}

/// Bytes of a file that come next in a NAR.
#[derive(Debug)]
pub(crate) struct FileSlice<'n> {
    pub(crate) file: BorrowedFd<'n>,
    pub(crate) offset: u64,
    pub(crate) end: u64,
}

impl NarRange {
    /// A range of which nothing is opened before it is sent. Without this, a request for sixteen
    /// ranges would hold sixteen open files until all of them are sent.
    pub(crate) fn lazy(plan: Arc<NarPlan>, path: &Path, range: Range<u64>) -> NarRange {
        NarRange {
            plan,
            tree: LazyTree {
                path: path.into(),
                root: None,
                open: None,
            },
            position: range.start,
            end: range.end,
        }
    }

    /// Opens the first file of a range. So a missing path is an error while the server can still
    /// respond with another status.
    ///
    /// Errors: the tree is not there, or is not the one of the plan.
    pub(crate) fn open(
        plan: Arc<NarPlan>,
        path: &Path,
        range: Range<u64>,
    ) -> Result<NarRange, StoreError> {
        let mut nar = NarRange::lazy(plan, path, range);
        nar.tree.root()?;
        let start = nar.position;
        let first = match nar.plan.part(start) {
            Some(PlanPart::Framing(bytes)) => nar.plan.part(start + bytes.len() as u64),
            Some(PlanPart::Packed { len, .. }) => nar.plan.part(start + len),
            contents => contents,
        };
        if let Some(PlanPart::Contents { file: number, .. }) = first {
            nar.tree.file(&nar.plan, number)?;
        }
        Ok(nar)
    }

    /// Appends what comes next to `buffer` if it is framing or a small file. Otherwise returns
    /// the bytes of a file, whose sending is reported to [`NarRange::advance`].
    ///
    /// Errors: the tree is not there any more, or has changed.
    pub(crate) fn next(
        &mut self,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<FileSlice<'_>>, StoreError> {
        let wanted = self.end - self.position;
        match self.plan.part(self.position) {
            None => Ok(None),
            Some(PlanPart::Framing(bytes)) => {
                // The framing of a tree of a million symlinks does not fit into a buffer.
                let len = bytes
                    .len()
                    .min(usize::try_from(wanted).unwrap_or(usize::MAX))
                    .min(CHUNK_LEN_MAX);
                buffer.extend_from_slice(bytes.get(..len).unwrap_or_default());
                self.position += len as u64;
                Ok(None)
            }
            Some(PlanPart::Packed { file, offset, len }) => Ok(Some(FileSlice {
                file,
                offset,
                end: offset + len.min(wanted),
            })),
            Some(PlanPart::Contents {
                file: number,
                len,
                offset: 0,
            }) if len < SENDFILE_MIN && len <= wanted && self.tree.open.is_none() => {
                self.plan.read(self.tree.root()?, number, buffer)?;
                self.position += len;
                Ok(None)
            }
            Some(PlanPart::Contents {
                file: number,
                offset,
                len,
            }) => {
                let end = offset + len.min(wanted);
                let file = self.tree.file(&self.plan, number)?;
                Ok(Some(FileSlice { file, offset, end }))
            }
        }
    }

    /// Moves on by the bytes of a slice that were sent.
    pub(crate) fn advance(&mut self, sent: u64) {
        self.position += sent;
    }

    /// Closes the file of a slice that was sent to its end.
    pub(crate) fn close_file(&mut self) {
        self.tree.open = None;
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.position >= self.end
    }

    /// Whether [`NarRange::next`] returns a slice that is sent with `sendfile`.
    pub(crate) fn next_is_large(&self) -> bool {
        match self.plan.part(self.position) {
            Some(PlanPart::Contents { len, .. } | PlanPart::Packed { len, .. }) => {
                len.min(self.end - self.position) >= SENDFILE_MIN
            }
            _ => false,
        }
    }
}

impl LazyTree {
    fn root(&mut self) -> Result<&mut TreeRoot, StoreError> {
        match self.root {
            Some(ref mut root) => Ok(root),
            None => Ok(self.root.insert(open_tree_root(&self.path)?)),
        }
    }

    fn file(&mut self, plan: &NarPlan, number: usize) -> Result<BorrowedFd<'_>, StoreError> {
        let open = match self.open.take() {
            Some(open) if open.0 == number => open,
            _ => (number, plan.open(self.root()?, number)?),
        };
        Ok(self.open.insert(open).1.as_fd())
    }
}
