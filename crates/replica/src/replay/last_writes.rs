//! Who wrote a row last: a table of fixed size, so that the scheduler allocates nothing per row.
//!
//! ```text
//! bucket (a cache line) = 3 x (key hash, last) | forgotten: the greatest `last` that was pushed out of this bucket
//! ```
//! Values only grow from call to call. A row that is found has its exact predecessor. A row that is not found was last written at or
//! below `forgotten`, so that stands in for it: too large perhaps, never too small. The oldest entry is pushed out, so what is
//! forgotten is installed long since, and a value too large waits for nothing. Rows with equal hashes count as one row.

use store::tree::prefetch;

const WAYS: usize = 3;

#[repr(align(64))]
#[derive(Clone, Copy, Default)]
struct Bucket {
    hashes: [u64; WAYS],
    lasts: [u64; WAYS],
    forgotten: u64,
}

pub(crate) struct LastWrites {
    buckets: Box<[Bucket]>,
    shift: u32,
}

/// What is known of a row's last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is this one; 0: none since the start.
    Exactly(u64),
    /// It is this one or an older one.
    AtMost(u64),
}

impl LastWrites {
    /// At least `rows` entries; 64 bytes per three of them.
    pub fn new(rows: usize) -> LastWrites {
        let buckets = rows.div_ceil(WAYS).next_power_of_two().max(2);
        LastWrites {
            buckets: vec![Bucket::default(); buckets].into(),
            shift: 64 - buckets.trailing_zeros(),
        }
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// Asks for the row's bucket.
    #[inline]
    pub fn ahead(&self, hash: u64) {
        prefetch(&self.buckets[self.place(hash)]);
    }

    /// Records that `now` writes the row; what wrote it before. `now` is not below any earlier one.
    #[inline]
    pub fn replace(&mut self, hash: u64, now: u64) -> Last {
        let place = self.place(hash);
        let b = &mut self.buckets[place];
        let mut oldest = 0;
        for i in 0..WAYS {
            if b.hashes[i] == hash && b.lasts[i] != 0 {
                return Last::Exactly(std::mem::replace(&mut b.lasts[i], now));
            }
            if b.lasts[i] < b.lasts[oldest] {
                oldest = i;
            }
        }
        let was = b.forgotten;
        b.forgotten = was.max(b.lasts[oldest]);
        b.hashes[oldest] = hash;
        b.lasts[oldest] = now;
        if was == 0 {
            Last::Exactly(0)
        } else {
            Last::AtMost(was)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn what_is_remembered_is_exact_and_what_is_not_is_never_too_small() {
        for rows in [1, 30, 3000] {
            let mut table = LastWrites::new(rows);
            let mut model: HashMap<u64, u64> = HashMap::new();
            let mut exact = 0;
            for now in 1..20_000u64 {
                let row = (now.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % 997;
                let hash = row.wrapping_mul(0xA076_1D64_78BD_642F);
                let before = model.insert(hash, now).unwrap_or(0);
                match table.replace(hash, now) {
                    Last::Exactly(at) => {
                        assert_eq!(at, before);
                        exact += 1;
                    }
                    Last::AtMost(at) => assert!(at >= before && at < now),
                }
            }
            assert!(rows < 3000 || exact > 19_000, "{exact} of 20000 are exact");
        }
    }
}
