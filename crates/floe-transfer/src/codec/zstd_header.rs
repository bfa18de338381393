//! The headers of Zstandard frames and blocks (RFC 8878, sections 3.1.1.1 and 3.1.1.2).

/// The facts that a frame tells before its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZstdHeader {
    /// The window, in bytes.
    pub(super) window: u64,
    /// The length of the contents, in bytes.
    pub(super) contents_len: Option<u64>,
    pub(super) has_dictionary: bool,
    pub(super) has_checksum: bool,
}

impl ZstdHeader {
    /// Returns the header at the beginning of a frame; `None` if `head` ends before its end, or is
    /// none.
    pub(super) fn parse(head: &[u8]) -> Option<ZstdHeader> {
        let (descriptor, rest) = head.strip_prefix(&MAGIC)?.split_first()?;
        let is_single_segment = descriptor & SINGLE_SEGMENT != 0;
        let (window, rest) = if is_single_segment {
            (None, rest)
        } else {
            let (window, rest) = rest.split_first()?;
            let base = 1 << (10 + (window >> 3));
            (Some(base + base / 8 * u64::from(window & 7)), rest)
        };
        let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let (dictionary, rest) = rest.split_at_checked(dictionary_len)?;
        let (size_len, offset) = match descriptor >> 6 {
            0 if is_single_segment => (1, 0),
            0 => (0, 0),
            1 => (2, 256),
            2 => (4, 0),
            _ => (8, 0),
        };
        let size = rest.get(..size_len)?;
        let contents_len = (size_len > 0).then(|| little_endian(size).wrapping_add(offset));
        Some(ZstdHeader {
            // The window of a single segment is as large as the contents.
            window: window.or(contents_len)?,
            contents_len,
            has_dictionary: dictionary.iter().any(|byte| *byte != 0),
            has_checksum: descriptor & CHECKSUM != 0,
        })
    }

    /// Whether further bytes may complete the header that `head` begins.
    pub(super) fn may_begin(head: &[u8]) -> bool {
        head.starts_with(&MAGIC) && head.len() < LEN_MAX
    }

    /// The length of the magic number and the descriptor, in bytes. No frame is shorter.
    pub(super) const LEN_MIN: usize = 5;
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZstdBlock {
    pub(super) is_last: bool,
    /// The number of bytes that follow the header.
    pub(super) len: usize,
}

impl ZstdBlock {
    /// Returns the header; `None` for a block of the reserved type.
    pub(super) fn parse(header: [u8; ZSTD_BLOCK_HEADER_LEN]) -> Option<ZstdBlock> {
        let [a, b, c] = header.map(usize::from);
        let fields = a | b << 8 | c << 16;
        Some(ZstdBlock {
            is_last: fields & 1 != 0,
            len: match fields >> 1 & 3 {
                // The contents, or their compressed form.
                0 | 2 => fields >> 3,
                // One byte, which is repeated.
                1 => 1,
                _ => return None,
            },
        })
    }
}

/// Parses a number of any length.
pub(super) fn little_endian(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// The length of the header of a block, in bytes.
pub(super) const ZSTD_BLOCK_HEADER_LEN: usize = 3;

/// The length of the checksum behind the last block, in bytes.
pub(super) const ZSTD_CHECKSUM_LEN: usize = 4;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SINGLE_SEGMENT: u8 = 0x20;
const CHECKSUM: u8 = 0x04;

/// Magic, descriptor, window, dictionary and size.
const LEN_MAX: usize = 4 + 1 + 1 + 4 + 8;
