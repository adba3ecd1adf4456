//! Randomness: the operating system's for secrets and names, a seeded one for everything that must be repeatable.

use parking_lot::Mutex;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// A source of random bytes.
pub trait Random: Send + Sync {
    /// Fills `out` with random bytes.
    fn fill(&self, out: &mut [u8]);

    /// Sixty-four random bits.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A hundred and twenty-eight random bits (cluster and stream ids).
    fn next_u128(&self) -> u128 {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        u128::from_le_bytes(bytes)
    }
}

/// The kernel's generator (`/dev/urandom`); good enough for secrets.
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&self, out: &mut [u8]) {
        static SOURCE: OnceLock<File> = OnceLock::new();
        let mut source =
            SOURCE.get_or_init(|| File::open("/dev/urandom").expect("/dev/urandom can be opened"));
        source.read_exact(out).expect("/dev/urandom can be read");
    }
}

/// A repeatable generator (splitmix64). Never for secrets.
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom {
            state: Mutex::new(seed),
        }
    }
}

impl Random for SeededRandom {
    fn fill(&self, out: &mut [u8]) {
        let mut state = self.state.lock();
        for chunk in out.chunks_mut(8) {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let (a, b, c) = (
            SeededRandom::new(1),
            SeededRandom::new(1),
            SeededRandom::new(2),
        );
        let first: Vec<u64> = (0..4).map(|_| a.next_u64()).collect();
        assert_eq!(first, (0..4).map(|_| b.next_u64()).collect::<Vec<_>>());
        assert_ne!(first, (0..4).map(|_| c.next_u64()).collect::<Vec<_>>());
        // The reference sequence of splitmix64 for seed 0.
        assert_eq!(SeededRandom::new(0).next_u64(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn the_kernel_gives_different_numbers() {
        assert_ne!(OsRandom.next_u128(), OsRandom.next_u128());
    }
}
