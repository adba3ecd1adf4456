//! Random numbers for workloads: a seeded generator and the distributions benchmarks ask for.
//!
//! [`Rng`] is xoshiro256** seeded by splitmix64 (Blackman and Vigna): a few nanoseconds a number,
//! equal on every machine for equal seeds. It is not for secrets. [`Zipf`] follows Gray et al.,
//! "Quickly generating billion-record synthetic databases" (SIGMOD 1994), as YCSB does: constant
//! work per draw after one pass over the item count. [`NuRand`] is clause 2.1.6 of TPC-C.
//!
//! Left out on purpose: rejection of modulo bias. [`Rng::below`] multiplies and shifts, whose bias
//! is below 2^-32 for every range a workload uses.

/// A seeded generator (xoshiro256**). Equal seeds give equal sequences everywhere.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        Rng(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..n`. `n` must be positive.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "an empty range has no random element");
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// The same for a place in a list of `n`.
    #[inline]
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Uniform in `low..=high`.
    #[inline]
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "between({low}, {high})");
        low + self.below((high - low) as u64 + 1) as i64
    }

    /// Uniform in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True `percent` times in a hundred.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills `out` with letters and digits.
    pub fn fill_text(&mut self, out: &mut [u8]) {
        const ALPHABET: &[u8; 64] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
        for chunk in out.chunks_mut(10) {
            let mut bits = self.next_u64();
            for byte in chunk {
                *byte = ALPHABET[(bits & 63) as usize];
                bits >>= 6;
            }
        }
    }
}

/// How keys are chosen: every key alike, or a few of them most of the time.
#[derive(Clone, Debug)]
pub enum Keys {
    Uniform(u64),
    Zipf(Zipf),
}

impl Keys {
    /// `theta` 0 is uniform; YCSB's usual skew is 0.99.
    pub fn new(items: u64, theta: f64) -> Keys {
        if theta == 0.0 {
            Keys::Uniform(items)
        } else {
            Keys::Zipf(Zipf::new(items, theta))
        }
    }

    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Keys::Uniform(items) => rng.below(*items),
            Keys::Zipf(zipf) => zipf.draw(rng),
        }
    }
}

/// Zipfian ranks in `0..items`, scattered over the key space so that the popular keys are not
/// neighbours in an ordered index.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta_n: f64,
    eta: f64,
}

impl Zipf {
    /// One pass over `items`; `theta` in (0, 1).
    pub fn new(items: u64, theta: f64) -> Zipf {
        assert!(
            items >= 2 && theta > 0.0 && theta < 1.0,
            "zipf({items}, {theta})"
        );
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let (zeta_2, zeta_n) = (zeta(2), zeta(items));
        Zipf {
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta_n,
            eta: (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_2 / zeta_n),
        }
    }

    /// The popularity rank: 0 is the most popular.
    #[inline]
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let uz = u * self.zeta_n;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.items - 1)
        }
    }

    /// A key: the rank, scattered by a multiplicative hash.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let hash = self.rank(rng).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(hash) * u128::from(self.items)) >> 64) as u64
    }
}

/// TPC-C's non-uniform random numbers; `c` is the run's constant for this use.
#[derive(Clone, Copy, Debug)]
pub struct NuRand {
    pub a: i64,
    pub c: i64,
}

impl NuRand {
    #[inline]
    pub fn draw(self, rng: &mut Rng, low: i64, high: i64) -> i64 {
        let mixed = rng.between(0, self.a) | rng.between(low, high);
        (mixed + self.c) % (high - low + 1) + low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        let (mut a, mut b, mut c) = (Rng::new(7), Rng::new(7), Rng::new(8));
        let first: Vec<u64> = (0..8).map(|_| a.next_u64()).collect();
        assert_eq!(first, (0..8).map(|_| b.next_u64()).collect::<Vec<_>>());
        assert_ne!(first, (0..8).map(|_| c.next_u64()).collect::<Vec<_>>());
    }

    #[test]
    fn ranges_are_closed_and_covered() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[(rng.between(-2, 2) + 2) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
    }

    #[test]
    fn zipf_is_skewed_as_asked_and_stays_inside() {
        let zipf = Zipf::new(1000, 0.99);
        let mut rng = Rng::new(3);
        let mut count = vec![0u32; 1000];
        for _ in 0..100_000 {
            count[zipf.rank(&mut rng) as usize] += 1;
        }
        // The most popular of 1,000 items at 0.99 has 1 / zeta(1000) = 13 % of the draws.
        assert!((11_000..15_500).contains(&count[0]), "{}", count[0]);
        assert!(count[0] > count[10] && count[10] > count[500]);
        assert!((0..100_000).all(|_| zipf.draw(&mut rng) < 1000));
    }

    #[test]
    fn nurand_stays_inside() {
        let mut rng = Rng::new(4);
        let customers = NuRand { a: 1023, c: 259 };
        assert!((0..10_000).all(|_| (1..=3000).contains(&customers.draw(&mut rng, 1, 3000))));
    }

    #[test]
    fn text_is_printable_and_varies() {
        let (mut a, mut b) = ([0u8; 25], [0u8; 25]);
        let mut rng = Rng::new(5);
        rng.fill_text(&mut a);
        rng.fill_text(&mut b);
        assert!(a.iter().all(u8::is_ascii_graphic));
        assert_ne!(a, b);
    }
}
