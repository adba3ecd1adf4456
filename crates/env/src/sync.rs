//! Locks and atomics of the house, so that a model checker can step in.
//!
//! Concurrent code takes its atomics, locks, spin hints and threads from here and from nowhere else. In an
//! ordinary build these *are* the types of `std` and `parking_lot`, with no layer between. With the feature
//! `shuttle` they are shuttle's: every access is a point where the scheduler may switch to another thread, and
//! a test wrapped in `shuttle::check_random` explores thousands of interleavings of the same code.
//!
//! Code that uses the shim shrinks its capacities under the feature (a node of 64 slots becomes one of 4), so
//! that splits and wrap-arounds happen within a schedule that can be explored.
//!
//! Left out on purpose: weak memory. Shuttle explores sequentially consistent executions only; orderings are
//! argued where they stand and watched by ThreadSanitizer. Condition variables are not here until they are needed.

#[cfg(not(feature = "shuttle"))]
mod imp {
    pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::hint;
    pub use std::sync::atomic;
    pub use std::thread;
}

#[cfg(feature = "shuttle")]
mod imp {
    pub use shuttle::hint;
    pub use shuttle::sync::atomic;
    pub use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    pub use shuttle::thread;

    /// `parking_lot`'s interface over shuttle's mutex: a poisoned lock is taken as it is.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|e| e.into_inner())
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// `parking_lot`'s interface over shuttle's reader-writer lock.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(|e| e.into_inner())
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(|e| e.into_inner())
        }
    }
}

pub use imp::*;
