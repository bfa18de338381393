//! Which floats fit into how many bytes.

/// A float in the fewest bits that hold exactly it.
pub(super) enum Shortest {
    /// A sign, 5 bits of exponent, 10 of fraction.
    Half(u16),
    /// As f32.
    Single(u32),
    /// As f64.
    Double(u64),
}

/// All that are not a number are one here: deterministic CBOR has to choose, and this is what
/// RFC 8949 suggests.
const NAN: u16 = 0x7e00;

/// The fraction of an f64, in bits.
const FRACTION_BITS: i32 = 52;

pub(super) fn shortest(value: f64) -> Shortest {
    if value.is_nan() {
        return Shortest::Half(NAN);
    }
    if let Some(half) = half(value) {
        return Shortest::Half(half);
    }
    let single = value as f32;
    if f64::from(single) == value {
        Shortest::Single(single.to_bits())
    } else {
        Shortest::Double(value.to_bits())
    }
}

/// The bits of a half that is exactly this number.
fn half(value: f64) -> Option<u16> {
    let bits = value.to_bits();
    let sign = ((bits >> 48) & 0x8000) as u16;
    if value == 0.0 {
        return Some(sign);
    }
    if value.is_infinite() {
        return Some(sign | 0x7c00);
    }
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let exponent = ((bits >> FRACTION_BITS) & 0x7ff) as i32 - 1023;
    match exponent {
        -14..=15 => {
            let kept = fraction >> 42;
            (kept << 42 == fraction).then_some(sign | ((exponent + 15) as u16) << 10 | kept as u16)
        }
        // Subnormal: multiples of 2^-24, so the fraction with its hidden bit moves by this much.
        -24..=-15 => {
            let whole = fraction | 1 << FRACTION_BITS;
            let shift = FRACTION_BITS - (exponent + 24);
            let kept = whole >> shift;
            (kept << shift == whole).then_some(sign | kept as u16)
        }
        _ => None,
    }
}

/// The number that a half is; none for what is not a number in another way than ours.
pub(super) fn from_half(half: u16) -> Option<f64> {
    let sign = u64::from(half >> 15) << 63;
    let exponent = u64::from(half >> 10 & 0x1f);
    let fraction = u64::from(half & 0x3ff);
    let magnitude = match exponent {
        // In units of 2^-24.
        0 => fraction as f64 / 16_777_216.0,
        31 if fraction == 0 => f64::INFINITY,
        31 => return (half == NAN).then_some(f64::NAN),
        _ => f64::from_bits((exponent + 1023 - 15) << FRACTION_BITS | fraction << 42),
    };
    Some(f64::from_bits(magnitude.to_bits() | sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_read_and_written_as_itself() {
        for bits in 0..=u16::MAX {
            match from_half(bits) {
                Some(value) => assert_eq!(half(value).unwrap_or(NAN), bits, "{value}"),
                None => assert!(bits & 0x7fff > 0x7c00, "{bits:#x}"),
            }
        }
    }

    #[test]
    fn what_a_half_cannot_hold_is_not_put_into_one() {
        for value in [
            65505.0,
            65536.0,
            1.0 + 1.0 / 2048.0,
            2f64.powi(-25),
            0.1,
            1e300,
            5e-324,
        ] {
            assert_eq!(half(value), None, "{value}");
            assert_eq!(half(-value), None, "{value}");
        }
        assert_eq!(half(65504.0), Some(0x7bff));
    }
}
