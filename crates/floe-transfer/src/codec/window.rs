//! The window of a compressed body, from its first bytes.
//!
//! Sources: `zstd_header`; the .xz file format 1.2.1, sections 2.1.1, 3.1 and
//! 5.3.1; the header of .lzma as liblzma documents it; RFC 7932, section 9.1 (brotli).

use floe_format::Compression;

use super::zstd_header::{ZstdHeader, little_endian};

/// Returns the window of the first frame, block or stream of a body, in bytes: 0 for compressions
/// whose windows are always small, `None` if the bytes do not contain it or are invalid.
pub fn window_len(compression: Compression, head: &[u8]) -> Option<u64> {
    match compression {
        Compression::Zstd => ZstdHeader::parse(head).map(|header| header.window),
        Compression::Xz => XzHeader::parse(head).map(|header| header.window),
        Compression::Lzma => lzma(head),
        Compression::Brotli => brotli(head),
        _ => Some(0),
    }
}

/// The facts in the headers of an xz body and its first block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct XzHeader {
    /// The length of the window, in bytes; 0 for a stream without a block.
    pub(super) window: u64,
    /// The compressed length of the block, in bytes, if it declares it.
    pub(super) block_len: Option<u64>,
    /// The length of the contents of the block, in bytes, if it declares it.
    pub(super) contents_len: Option<u64>,
}

impl XzHeader {
    /// Parses the beginning of a body; `None` if it does not contain the headers or is invalid.
    pub(super) fn parse(head: &[u8]) -> Option<XzHeader> {
        let block = head.strip_prefix(&XZ_MAGIC)?.get(XZ_FLAGS_LEN..)?;
        let (size, rest) = block.split_first()?;
        let mut header = XzHeader::default();
        if *size == 0 {
            // This is the index: the stream has no block.
            return Some(header);
        }
        let (flags, mut rest) = rest.split_first()?;
        for (flag, len) in [
            (0x40, &mut header.block_len),
            (0x80, &mut header.contents_len),
        ] {
            if flags & flag != 0 {
                let (declared, after) = xz_number(rest)?;
                (*len, rest) = (Some(declared), after);
            }
        }
        for _ in 0..=flags & 3 {
            let (id, after) = xz_number(rest)?;
            let (properties_len, after) = xz_number(after)?;
            let (properties, after) =
                after.split_at_checked(usize::try_from(properties_len).ok()?)?;
            if id == LZMA2 {
                let bits = properties.first()? & 0x3f;
                header.window = u64::from(2 | (bits & 1)) << (bits / 2 + 11);
                return Some(header);
            }
            rest = after;
        }
        None
    }
}

/// Parses a number of seven bits per byte, lowest bits first. Returns the rest too.
fn xz_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    let (number, rest) = bytes.split_at(end + 1);
    let number = number
        .iter()
        .rfold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
    Some((number, rest))
}

fn lzma(head: &[u8]) -> Option<u64> {
    Some(little_endian(head.get(1..5)?))
}

fn brotli(head: &[u8]) -> Option<u64> {
    let first = head.first()?;
    let bits = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, _, _) => 16,
        (_, 0, 0) => 17,
        // A window larger than the RFC allows. The decoder refuses it.
        (_, 0, 1) => return None,
        (_, 0, low) => 8 + u32::from(low),
        (_, high, _) => 17 + u32::from(high),
    };
    Some((1 << bits) - 16)
}

const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// The length of the stream flags with their checksum.
const XZ_FLAGS_LEN: usize = 6;
/// The ID of the LZMA2 filter.
const LZMA2: u64 = 0x21;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use liblzma::stream::{Check, Filters, LzmaOptions, Stream};

    use super::*;

    #[test]
    fn zstd_header_gives_window() {
        for log in 10..=27 {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(log).unwrap();
            encoder.write_all(&[7; 100]).unwrap();
            let body = encoder.finish().unwrap();
            assert_eq!(window_len(Compression::Zstd, &body), Some(1 << log));
        }
        // If the content size is known, the window is at most as large.
        for len in [1, 300, 70_000, 5_000_000] {
            let body = zstd::encode_all(&*vec![7; len], 1).unwrap();
            let whole = zstd::bulk::compress(&vec![7; len], 1).unwrap();
            assert!(window_len(Compression::Zstd, &body).is_some());
            assert!(window_len(Compression::Zstd, &whole).unwrap() <= len.max(1 << 19) as u64);
        }
        assert_eq!(
            window_len(
                Compression::Zstd,
                &zstd::bulk::compress(&[7; 300], 1).unwrap()
            ),
            Some(300)
        );
    }

    #[test]
    fn xz_and_lzma_headers_give_window() {
        for len in [4096_u32, 1 << 20, 3 << 20, 8 << 20, 64 << 20] {
            let mut options = LzmaOptions::new_preset(0).unwrap();
            options.dict_size(len);
            let mut filters = Filters::new();
            // The parser must skip a filter in front of LZMA2.
            filters.x86().lzma2(&options);
            let stream = Stream::new_stream_encoder(&filters, Check::Crc32).unwrap();
            let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
            encoder.write_all(&[7; 100]).unwrap();
            let body = encoder.finish().unwrap();
            assert_eq!(window_len(Compression::Xz, &body), Some(len.into()));

            let stream = Stream::new_lzma_encoder(&options).unwrap();
            let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
            encoder.write_all(&[7; 100]).unwrap();
            let body = encoder.finish().unwrap();
            assert_eq!(window_len(Compression::Lzma, &body), Some(len.into()));
        }
        let empty = liblzma::encode_all(&[][..], 6).unwrap();
        assert_eq!(window_len(Compression::Xz, &empty), Some(0));
    }

    #[test]
    fn brotli_header_gives_window() {
        for bits in 10..=24 {
            let mut body = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(&mut body, 4096, 5, bits);
            encoder.write_all(&vec![7; 100_000]).unwrap();
            drop(encoder);
            assert_eq!(
                window_len(Compression::Brotli, &body),
                Some((1 << bits) - 16),
                "{bits}"
            );
        }
    }

    #[test]
    fn short_or_unknown_header_gives_no_window() {
        let whole = liblzma::encode_all(&[7; 100][..], 6).unwrap();
        for compression in [Compression::Zstd, Compression::Xz, Compression::Lzma] {
            assert_eq!(window_len(compression, b""), None);
            assert_eq!(window_len(compression, b"\x28\xb5"), None);
        }
        for len in 0..17 {
            assert_eq!(window_len(Compression::Xz, &whole[..len]), None, "{len}");
        }
        assert_eq!(window_len(Compression::Xz, &whole), Some(8 << 20));
        assert_eq!(window_len(Compression::Zstd, &whole), None);
        assert_eq!(window_len(Compression::Brotli, &[0x11]), None);
        assert_eq!(window_len(Compression::Gzip, b""), Some(0));
    }
}
