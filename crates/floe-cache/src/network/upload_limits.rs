//! The memory of uploads.

/// The largest object that is sent in one request, and the length of the parts of larger ones, in
/// bytes. An object store takes parts from 5 MiB on, and at most 10,000 of them.
pub(crate) const PART_LEN: usize = 8 * 1024 * 1024;

/// The parts that one upload has in memory: one is on its way while the next one is made.
pub(crate) const PARTS_MAX: usize = 2;

/// The memory of one upload, in bytes.
pub(crate) const SHARE_LEN: usize = PARTS_MAX * PART_LEN;

/// The memory of all objects on their way, in bytes.
pub(crate) const UPLOADS_LEN: usize = 6 * SHARE_LEN;
