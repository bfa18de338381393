//! Reproducible pseudo-random numbers.

/// A reproducible pseudo-random number generator (Marsaglia's xorshift).
pub struct XorShift(
    /// The state. It must not be 0.
    pub u64,
);

impl XorShift {
    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}
