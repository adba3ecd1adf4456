//! Bank: transfers between accounts; the sum of all balances never changes.
//!
//! The oldest consistency test there is. Any transaction that reads all accounts, at any moment,
//! must see the total that was set up; a half-applied transfer, a lost update or a snapshot that
//! is no prefix shows as another sum. Balances never fall below zero, because a transfer of more
//! than there is does nothing.
//!
//! Left out on purpose: at READ COMMITTED a transfer must be written so that it does not read
//! first and write later; the runner decides the statements.

use crate::rng::Rng;

/// `accounts` accounts, numbered from 0, with `initial` each.
#[derive(Clone, Copy, Debug)]
pub struct Bank {
    pub accounts: u64,
    pub initial: i64,
}

/// Move `amount` (positive) from one account to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub from: u64,
    pub to: u64,
    pub amount: i64,
}

impl Bank {
    pub fn total(&self) -> i64 {
        self.accounts as i64 * self.initial
    }

    /// A transfer between two different accounts.
    pub fn transfer(&self, rng: &mut Rng) -> Transfer {
        assert!(self.accounts >= 2, "a transfer needs two accounts");
        let from = rng.below(self.accounts);
        let to = (from + 1 + rng.below(self.accounts - 1)) % self.accounts;
        Transfer {
            from,
            to,
            amount: rng.between(1, (self.initial / 2).max(1)),
        }
    }

    /// Checks what one transaction read: every account once.
    pub fn check(&self, balances: &[i64]) -> Result<(), String> {
        if balances.len() as u64 != self.accounts {
            return Err(format!(
                "{} accounts, {} expected",
                balances.len(),
                self.accounts
            ));
        }
        if let Some(negative) = balances.iter().find(|&&b| b < 0) {
            return Err(format!("a balance of {negative}"));
        }
        let sum: i64 = balances.iter().sum();
        if sum != self.total() {
            return Err(format!("total {sum}, expected {}", self.total()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_keep_the_total() {
        let bank = Bank {
            accounts: 5,
            initial: 100,
        };
        let mut balances = vec![100i64; 5];
        let mut rng = Rng::new(2);
        for _ in 0..1000 {
            let t = bank.transfer(&mut rng);
            assert!(t.from != t.to && t.amount > 0);
            if balances[t.from as usize] >= t.amount {
                balances[t.from as usize] -= t.amount;
                balances[t.to as usize] += t.amount;
            }
            bank.check(&balances).unwrap();
        }
    }

    #[test]
    fn a_half_transfer_is_found() {
        let bank = Bank {
            accounts: 2,
            initial: 100,
        };
        assert!(bank.check(&[90, 100]).is_err());
        assert!(bank.check(&[300, -100]).is_err());
        assert!(bank.check(&[200]).is_err());
    }
}
