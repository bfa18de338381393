//! Packs the small files of a plan into one memory file.

use std::fs::File;
use std::io::{self, Write as _};

use rustix::fs::{MemfdFlags, memfd_create};

use super::{NarPlan, PlanPart, PlannedFile, TreeRoot};
use crate::error::{IoContext as _, StoreError};
use crate::tree::CHUNK_LEN;

impl NarPlan {
    /// Returns the number of files smaller than `limit`, and the length of the packed file with
    /// them.
    pub fn small_files(&self, limit: u64) -> (usize, u64) {
        let small = self.files.iter().filter(|file| file.size < limit);
        small.fold((0, self.framing_len), |(count, len), file| {
            (count + 1, len + file.size)
        })
    }

    /// Returns the same plan, with the contents of all files smaller than `limit` packed.
    ///
    /// Errors: those of [`NarPlan::open`] and of the system.
    pub fn pack(&self, root: &mut TreeRoot, limit: u64) -> Result<NarPlan, StoreError> {
        let file = memfd_create("floe-packed-nar", MemfdFlags::CLOEXEC)
            .io_context("make a file in memory for", &root.path)?;
        let mut packed = PackedFileWriter {
            file: File::from(file),
            buffer: Vec::with_capacity(CHUNK_LEN),
            len: 0,
        };
        let mut files = Vec::new();
        let mut names = Vec::new();
        let mut position = 0;
        while let Some(part) = self.part(position) {
            position += match part {
                PlanPart::Framing(bytes) => packed.append(bytes).io_context("pack", &root.path)?,
                PlanPart::Packed { len, .. } => len,
                PlanPart::Contents { file, len, .. } => {
                    let (planned, name) = self.file(file).ok_or_else(|| root.changed(b""))?;
                    if planned.size < limit {
                        self.read(root, file, &mut packed.buffer)?;
                        packed.len += len;
                        packed.flush_if_full().io_context("pack", &root.path)?;
                    } else {
                        names.extend_from_slice(name);
                        files.push(PlannedFile {
                            framing: packed.len,
                            names: names.len(),
                            ..*planned
                        });
                    }
                    len
                }
            };
        }
        packed.flush().io_context("pack", &root.path)?;
        Ok(NarPlan {
            framing: Vec::new(),
            framing_len: packed.len,
            packed: Some(packed.file.into()),
            files,
            names,
            nar_size: self.nar_size,
        })
    }
}

/// A packed file that is being written.
struct PackedFileWriter {
    file: File,
    buffer: Vec<u8>,
    /// The total length, including the buffer.
    len: u64,
}

impl PackedFileWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.buffer.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        self.flush_if_full()?;
        Ok(bytes.len() as u64)
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= CHUNK_LEN {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
