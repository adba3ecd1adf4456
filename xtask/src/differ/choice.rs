//! The choices that make a query. A query is a function of a list of numbers, so a list replays it, and a shorter list with
//! smaller numbers is a simpler query: that is all that minimising needs to know. Zero is the simplest choice everywhere, and
//! what comes when a list is at its end.

/// SplitMix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Where a generator gets its choices.
pub struct Choices {
    made: Vec<u32>,
    at: usize,
    random: Option<Random>,
}

/// Longer lists make queries that say nothing new.
const MOST: usize = 600;

impl Choices {
    /// Those of a seed.
    pub fn of_seed(seed: u64) -> Choices {
        Choices {
            made: vec![],
            at: 0,
            random: Some(Random(seed)),
        }
    }

    /// Those of a list.
    pub fn replay(made: Vec<u32>) -> Choices {
        Choices {
            made,
            at: 0,
            random: None,
        }
    }

    /// The list so far.
    pub fn made(self) -> Vec<u32> {
        self.made
    }

    /// A number below `n`.
    pub fn pick(&mut self, n: usize) -> usize {
        let at = self.at;
        self.at += 1;
        if let Some(r) = &mut self.random {
            let v = if at < MOST { r.next() as u32 } else { 0 };
            // Kept as it is used, so that a smaller number is a simpler choice.
            let v = v % n as u32;
            self.made.push(v);
            return v as usize;
        }
        self.made.get(at).map_or(0, |v| *v as usize % n)
    }

    /// True once in `n` times; false is simpler.
    pub fn rarely(&mut self, n: usize) -> bool {
        self.pick(n) == n - 1
    }

    /// One of these; the first is simplest.
    pub fn one<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> &'t T {
        of[self.pick(of.len())]
    }
}

/// The shortest list found for which `fails` holds, with at most `tries` questions.
pub fn shrink(
    mut list: Vec<u32>,
    mut tries: usize,
    fails: &mut dyn FnMut(&[u32]) -> bool,
) -> Vec<u32> {
    let mut try_one = |list: &mut Vec<u32>, other: Vec<u32>, tries: &mut usize| {
        if *tries == 0 || other == *list {
            return false;
        }
        *tries -= 1;
        let better = fails(&other);
        if better {
            *list = other;
        }
        better
    };
    loop {
        let before = list.clone();
        // Cut pieces out, large ones first.
        let mut size = (list.len() / 2).max(1);
        loop {
            let mut at = 0;
            while at < list.len() {
                let mut other = list.clone();
                other.drain(at..(at + size).min(list.len()));
                if !try_one(&mut list, other, &mut tries) {
                    at += size;
                }
            }
            if size == 1 {
                break;
            }
            size /= 2;
        }
        // Make pieces zero, then single numbers smaller.
        for size in [8, 4, 2, 1] {
            let mut at = 0;
            while at < list.len() {
                let end = (at + size).min(list.len());
                let mut other = list.clone();
                other[at..end].fill(0);
                try_one(&mut list, other, &mut tries);
                at = end;
            }
        }
        for at in 0..list.len() {
            for v in [list[at] / 2, list[at].saturating_sub(1)] {
                let mut other = list.clone();
                other[at] = v;
                try_one(&mut list, other, &mut tries);
            }
        }
        while list.last() == Some(&0) {
            list.pop();
        }
        if list == before || tries == 0 {
            return list;
        }
    }
}
