//! A set of columns of one relation, by number. Sets of columns up to 63 take no memory beside their own.

/// Columns by number, counted from 1; 0 stands for what is no column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet {
    first: u64,
    more: Vec<u64>,
}

impl ColumnSet {
    /// Adds a column.
    pub fn insert(&mut self, column: u16) {
        let (word, bit) = (usize::from(column / 64), 1 << (column % 64));
        let Some(at) = word.checked_sub(1) else {
            self.first |= bit;
            return;
        };
        if self.more.len() <= at {
            self.more.resize(at + 1, 0);
        }
        self.more[at] |= bit;
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.more.is_empty()
    }

    /// The columns in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        let words = std::iter::once(self.first).chain(self.more.iter().copied());
        let bits = |(at, word): (usize, u64)| {
            let set = (0..64).filter(move |bit| word >> bit & 1 == 1);
            set.map(move |bit| (at * 64 + bit) as u16)
        };
        words.enumerate().flat_map(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_back_in_order() {
        let mut set = ColumnSet::default();
        assert!(set.is_empty());
        let columns = [0, 1, 63, 64, 127, 128, 1600];
        for c in columns.iter().rev().chain(&columns) {
            set.insert(*c);
        }
        assert!(!set.is_empty());
        assert_eq!(set.iter().collect::<Vec<u16>>(), columns);
        let mut far = ColumnSet::default();
        far.insert(700);
        assert!(!far.is_empty());
        assert_eq!(far.iter().collect::<Vec<u16>>(), [700]);
    }
}
