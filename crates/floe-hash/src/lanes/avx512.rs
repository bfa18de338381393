//! The compression function of SHA-256 for 16 messages, with AVX-512.
//!
//! 1. Load 16 blocks, one of each message, and transpose them. Vector *t* then has word *t* of
//!    every message.
//! 2. Run the 64 rounds of FIPS 180-4, section 6.2.2, with vectors in place of words.
//! 3. Add the result to the states, which stay transposed from block to block.
#![expect(
    unsafe_code,
    reason = "instructions that not every CPU has; the CPU is checked before each call"
)]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_ror_epi32, _mm512_set1_epi32,
    _mm512_set4_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_shuffle_i32x4,
    _mm512_srli_epi32, _mm512_storeu_si512, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use super::{Block, LANES};

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
#[rustfmt::skip]
const ROUND: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5,
    0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3,
    0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc,
    0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7,
    0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13,
    0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3,
    0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5,
    0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208,
    0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// Returns whether this CPU has the instructions of [`compress`].
pub(super) fn is_supported() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
}

/// Hashes `count` blocks of each message.
///
/// `states` has a row for each of the eight words and a column for each message.
///
/// # Panics
///
/// Panics if the CPU lacks the instructions, or if a message has fewer than `count` blocks.
pub(super) fn compress(states: &mut [[u32; LANES]; 8], blocks: &[&[Block]; LANES], count: usize) {
    assert!(is_supported(), "this CPU has no AVX-512");
    // SAFETY: the assertion above has checked that the CPU has the instructions.
    unsafe { compress_all(states, blocks, count) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn compress_all(states: &mut [[u32; LANES]; 8], blocks: &[&[Block]; LANES], count: usize) {
    let mut state = states.map(|row| load(&row));
    for number in 0..count {
        let block = transpose(blocks, number);
        let after = rounds(state, block);
        for (sum, word) in state.iter_mut().zip(after) {
            *sum = _mm512_add_epi32(*sum, word);
        }
    }
    for (row, vector) in states.iter_mut().zip(state) {
        // SAFETY: a row has 64 bytes, and the store needs no alignment.
        unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), vector) };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(row: &[u32; LANES]) -> __m512i {
    // SAFETY: a row has 64 bytes, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
}

/// Loads block `number` of each message. Vector *t* has word *t* of every message.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(blocks: &[&[Block]; LANES], number: usize) -> [__m512i; 16] {
    let big_endian = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    let mut rows = [_mm512_setzero_si512(); 16];
    for (row, message) in rows.iter_mut().zip(blocks) {
        let block: &Block = &message[number];
        // SAFETY: a block has 64 bytes, and the load needs no alignment.
        let words = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        *row = _mm512_shuffle_epi8(words, big_endian);
    }
    // Interleave pairs of rows, and then pairs of pairs. Both act within quarters of 128 bits.
    let mut pairs = rows;
    for at in (0..16).step_by(2) {
        pairs[at] = _mm512_unpacklo_epi32(rows[at], rows[at + 1]);
        pairs[at + 1] = _mm512_unpackhi_epi32(rows[at], rows[at + 1]);
    }
    let mut fours = pairs;
    for at in (0..16).step_by(4) {
        fours[at] = _mm512_unpacklo_epi64(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm512_unpackhi_epi64(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm512_unpacklo_epi64(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm512_unpackhi_epi64(pairs[at + 1], pairs[at + 3]);
    }
    // Quarter q of vector 4g + c now has word 4q + c of the messages 4g to 4g + 3. The shuffles
    // collect the quarters q of the four groups g in vector 4q + c.
    let mut words = fours;
    for column in 0..4 {
        let (a, b) = (fours[column], fours[4 + column]);
        let (c, d) = (fours[8 + column], fours[12 + column]);
        let (even_low, odd_low) = (
            _mm512_shuffle_i32x4::<EVEN>(a, b),
            _mm512_shuffle_i32x4::<ODD>(a, b),
        );
        let (even_high, odd_high) = (
            _mm512_shuffle_i32x4::<EVEN>(c, d),
            _mm512_shuffle_i32x4::<ODD>(c, d),
        );
        words[column] = _mm512_shuffle_i32x4::<EVEN>(even_low, even_high);
        words[4 + column] = _mm512_shuffle_i32x4::<EVEN>(odd_low, odd_high);
        words[8 + column] = _mm512_shuffle_i32x4::<ODD>(even_low, even_high);
        words[12 + column] = _mm512_shuffle_i32x4::<ODD>(odd_low, odd_high);
    }
    words
}

/// Selects the quarters 0 and 2 of both operands.
const EVEN: i32 = 0x88;
/// Selects the quarters 1 and 3 of both operands.
const ODD: i32 = 0xdd;

// Truth tables of functions of three bits a, b and c, for the ternary logic instruction.
const XOR: i32 = 0x96;
/// `a ? b : c`
const CHOOSE: i32 = 0xca;
const MAJORITY: i32 = 0xe8;

/// One round. The arguments are the variables of the words *a* to *h*, a message word and a round
/// constant.
///
/// A round of SHA-256 ends with a rotation of the eight words. This macro does not move them.
/// Instead, the next round gets the variables in rotated order.
macro_rules! round {
    (
        $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident,
        $word:expr, $k:expr
    ) => {
        let sum = _mm512_add_epi32($word, _mm512_set1_epi32($k.cast_signed()));
        let choice = _mm512_ternarylogic_epi32::<CHOOSE>($e, $f, $g);
        let first = _mm512_add_epi32(
            _mm512_add_epi32($h, big_sigma::<6, 11, 25>($e)),
            _mm512_add_epi32(choice, sum),
        );
        let majority = _mm512_ternarylogic_epi32::<MAJORITY>($a, $b, $c);
        let second = _mm512_add_epi32(big_sigma::<2, 13, 22>($a), majority);
        $d = _mm512_add_epi32($d, first);
        $h = _mm512_add_epi32(first, second);
    };
}

/// Runs the 64 rounds for one block of each message, without the final addition to the state.
#[inline]
#[target_feature(enable = "avx512f")]
fn rounds(state: [__m512i; 8], mut w: [__m512i; 16]) -> [__m512i; 8] {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for (number, k) in ROUND.as_chunks::<16>().0.iter().enumerate() {
        if number > 0 {
            w = next_schedule(w);
        }
        round!(a b c d e f g h, w[0], k[0]);
        round!(h a b c d e f g, w[1], k[1]);
        round!(g h a b c d e f, w[2], k[2]);
        round!(f g h a b c d e, w[3], k[3]);
        round!(e f g h a b c d, w[4], k[4]);
        round!(d e f g h a b c, w[5], k[5]);
        round!(c d e f g h a b, w[6], k[6]);
        round!(b c d e f g h a, w[7], k[7]);
        round!(a b c d e f g h, w[8], k[8]);
        round!(h a b c d e f g, w[9], k[9]);
        round!(g h a b c d e f, w[10], k[10]);
        round!(f g h a b c d e, w[11], k[11]);
        round!(e f g h a b c d, w[12], k[12]);
        round!(d e f g h a b c, w[13], k[13]);
        round!(c d e f g h a b, w[14], k[14]);
        round!(b c d e f g h a, w[15], k[15]);
    }
    [a, b, c, d, e, f, g, h]
}

/// Returns the next 16 words of the message schedule.
#[inline]
#[target_feature(enable = "avx512f")]
fn next_schedule(mut w: [__m512i; 16]) -> [__m512i; 16] {
    for t in 0..16 {
        let recent = small_sigma::<17, 19, 10>(w[(t + 14) % 16]);
        let old = small_sigma::<7, 18, 3>(w[(t + 1) % 16]);
        let plain = _mm512_add_epi32(w[t], w[(t + 9) % 16]);
        w[t] = _mm512_add_epi32(_mm512_add_epi32(recent, old), plain);
    }
    w
}

#[inline]
#[target_feature(enable = "avx512f")]
fn big_sigma<const A: i32, const B: i32, const C: i32>(x: __m512i) -> __m512i {
    let (a, b) = (_mm512_ror_epi32::<A>(x), _mm512_ror_epi32::<B>(x));
    _mm512_ternarylogic_epi32::<XOR>(a, b, _mm512_ror_epi32::<C>(x))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn small_sigma<const A: i32, const B: i32, const C: u32>(x: __m512i) -> __m512i {
    let (a, b) = (_mm512_ror_epi32::<A>(x), _mm512_ror_epi32::<B>(x));
    _mm512_ternarylogic_epi32::<XOR>(a, b, _mm512_srli_epi32::<C>(x))
}
