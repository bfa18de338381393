//! The decoder of frames gives what zstd's own decoder gives, on any number of cores.

use std::cell::Cell;
use std::io::{BufReader, Write as _};

use zstd::stream::write::Encoder;
use zstd::zstd_safe::CParameter;

use super::*;
use crate::codec::WINDOW_LEN_MAX;

/// A sequence of numbers that is the same in each run (xorshift64).
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A body that arrives in pieces, and notes how many cores are idle meanwhile.
struct Pieces<'a> {
    bytes: &'a [u8],
    len: usize,
    cores: Arc<IdleCores>,
    idle_min: &'a Cell<isize>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        let idle = self.idle_min.get().min(self.cores.count());
        self.idle_min.set(idle);
        let len = self.len.min(output.len());
        (&mut self.bytes).take(len as u64).read(output)
    }
}

/// Decodes a body. Returns its contents, and the smallest number of idle cores meanwhile.
fn decode(body: &[u8], len: u64, cores: usize) -> (io::Result<Vec<u8>>, isize) {
    let (cores, count) = (Arc::new(IdleCores::new(cores)), cores);
    let budget = DecoderBudget::new(1);
    let free = budget.free_for_frames();
    let idle_min = Cell::new(isize::MAX);
    let mut contents = Vec::new();
    let pieces = Pieces {
        bytes: body,
        len: 77_777,
        cores: cores.clone(),
        idle_min: &idle_min,
    };
    let body = BufReader::with_capacity(1 << 17, pieces);
    let mut decoder = ZstdDecoder::new(body, (WINDOW_LEN_MAX, len), &budget, cores.clone());
    let decoded = decoder.read_to_end(&mut contents);
    drop(decoder);
    assert_eq!(cores.count(), count as isize);
    assert_eq!(budget.free_for_frames(), free);
    (decoded.map(|_| contents), idle_min.get())
}

fn contents(len: usize, seed: u64) -> Vec<u8> {
    let mut random = XorShift(seed + 1);
    let words: Vec<[u8; 8]> = (0..997).map(|_| random.next().to_le_bytes()).collect();
    let all = (0..len.div_ceil(8)).flat_map(|_| words[random.below(words.len())]);
    all.take(len).collect()
}

/// A frame that declares its length.
fn frame(contents: &[u8], has_checksum: bool) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), 1).unwrap();
    encoder
        .set_pledged_src_size(Some(contents.len() as u64))
        .unwrap();
    encoder.include_checksum(has_checksum).unwrap();
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

/// Frames of all kinds, after some that cores can divide.
fn mixed_body() -> (Vec<u8>, Vec<u8>) {
    let (mut body, mut all) = (Vec::new(), Vec::new());
    let mut add = |contents: Vec<u8>, frame: Vec<u8>| {
        body.extend_from_slice(&frame);
        all.extend_from_slice(&contents);
    };
    for seed in 0..4 {
        let part = contents(300_000 + seed, seed as u64);
        add(part.clone(), frame(&part, seed % 2 == 0));
    }
    // Lengths that need each form of the field, and contents that do not become shorter.
    for len in [0, 1, 255, 256, 65_791, 65_792, 131_072] {
        let part = contents(len, 9);
        add(part.clone(), frame(&part, true));
    }
    let mut random = XorShift(5);
    let noise: Vec<u8> = (0..400_000).map(|_| random.below(256) as u8).collect();
    add(noise.clone(), frame(&noise, false));
    add(vec![7; 1 << 20], frame(&vec![7; 1 << 20], true));
    // A frame that declares nothing, and one to skip.
    let part = contents(500_000, 11);
    add(part.clone(), zstd::encode_all(&*part, 3).unwrap());
    add(
        vec![],
        [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat(),
    );
    // A frame of many small blocks, which is longer than its contents.
    let mut encoder = Encoder::new(Vec::new(), 1).unwrap();
    encoder.set_pledged_src_size(Some(200_000)).unwrap();
    encoder
        .set_parameter(CParameter::CompressionLevel(1))
        .unwrap();
    for byte in &noise[..200_000] {
        encoder.write_all(&[*byte]).unwrap();
        encoder.flush().unwrap();
    }
    add(noise[..200_000].to_vec(), encoder.finish().unwrap());
    let part = contents(900_000, 12);
    add(part.clone(), frame(&part, true));
    (body, all)
}

#[test]
fn all_frames_are_decoded_on_any_number_of_cores() {
    let (body, expected) = mixed_body();
    assert_eq!(zstd::decode_all(&*body).unwrap(), expected);
    for cores in [0, 1, 3, 40] {
        let (decoded, _) = decode(&body, expected.len() as u64, cores);
        assert!(decoded.unwrap() == expected, "{cores} cores");
    }
}

#[test]
fn idle_cores_decompress_frames() {
    let part = contents(4 << 20, 3);
    let body = frame(&part, false).repeat(6);
    for (cores, len, expected) in [
        (0, 6 * part.len(), 0),
        (2, 6 * part.len(), 1),
        // For the only frame, a thread would not be faster.
        (2, part.len(), 2),
    ] {
        let body = &body[..body.len() / (6 * part.len() / len)];
        let (decoded, idle_min) = decode(body, len as u64, cores);
        assert!(decoded.unwrap() == part.repeat(len / part.len()));
        assert!(idle_min <= expected, "{cores} cores: {idle_min} idle");
        if len == part.len() {
            assert_eq!(idle_min, expected);
        }
    }
}

#[test]
fn damaged_body_fails_as_in_zstd() {
    let (body, expected) = mixed_body();
    let mut random = XorShift(63);
    let mut failed = 0;
    for _ in 0..150 {
        let mut damaged = body.clone();
        let place = random.below(damaged.len());
        match random.below(3) {
            0 => damaged.truncate(place),
            1 => damaged[place] ^= 1 << random.below(8),
            _ => _ = damaged.remove(place),
        }
        let reference = zstd::decode_all(&*damaged);
        for cores in [0, 3] {
            match (decode(&damaged, expected.len() as u64, cores).0, &reference) {
                (Ok(decoded), Ok(reference)) => assert!(decoded == *reference, "at {place}"),
                (Ok(_), Err(error)) => panic!("at {place}: zstd fails: {error}"),
                // zstd itself notices contents that are longer than declared only if its buffer
                // is full.
                (Err(error), Ok(_)) => {
                    assert_eq!(error.to_string(), "Destination buffer is too small");
                }
                (Err(_), Err(_)) => {}
            }
        }
        failed += usize::from(reference.is_err());
    }
    assert!(failed > 50, "{failed} bodies were damaged");
}

#[test]
fn body_may_be_empty_or_longer_than_declared() {
    assert_eq!(decode(b"", 0, 2).0.unwrap(), b"");
    let part = contents(300_000, 3);
    let body = frame(&part, true).repeat(3);
    for len in [0, 1, 300_000, 600_001] {
        assert!(decode(&body, len, 2).0.unwrap() == part.repeat(3), "{len}");
    }
}

#[test]
fn frames_never_exceed_their_budget() {
    // Each frame takes all of the budget of a machine with few cores.
    let part = vec![0; 32 << 20];
    let body = frame(&part, false).repeat(4);
    let (decoded, _) = decode(&body, 4 << 25, 8);
    let decoded = decoded.unwrap();
    assert_eq!(decoded.len(), 4 << 25);
    assert!(decoded.iter().all(|byte| *byte == 0));
}
