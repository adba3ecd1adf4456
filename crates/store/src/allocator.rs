//! The program's allocator, told how to treat the memory that rows have left.
//!
//! mimalloc gives free pages back to the system after a second. Versions come and go at the pace of the writes, so in a database that
//! works these are pages that are wanted again at once, and each comes back as two megabytes of zeros: measured, 15 percent of a
//! replica's CPU, in a burst every second. So freed pages are kept ([`keep_freed_pages`]), and given back when the rows have
//! shrunk to a half ([`crate::Memory::has_shrunk`], [`give_pages_back`]).
//!
//! [`Metered`] draws each allocation from the account of the session that makes it.
//!
//! Without the feature `mimalloc`, as in a library's or a test's process, nothing happens here.
//!
//! [`Counting`] (feature `counting`) is for tests that say how often a path allocates.
//!
//! Left out on purpose: other allocators, and giving back bit by bit.

#[cfg(feature = "mimalloc")]
mod calls {
    use std::ffi::{c_int, c_long};

    // Links the library.
    use libmimalloc_sys as _;

    /// `mi_option_purge_delay` in mimalloc.h, versions 2 and 3.
    pub const PURGE_DELAY: c_int = 15;

    /// A year, in milliseconds. Not -1, which would take away the purge by `mi_collect`, too.
    pub const NEVER: c_long = 365 * 86_400_000;

    unsafe extern "C" {
        pub fn mi_option_set(option: c_int, value: c_long);
        pub fn mi_collect(force: bool);
    }
}

/// Freed pages stay with the process from now on. To be called once, before there are other threads.
pub fn keep_freed_pages() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: the option is there in this version of the library and takes any number. It is not atomic, and the caller has no
    // other threads yet.
    unsafe {
        calls::mi_option_set(calls::PURGE_DELAY, calls::NEVER);
    }
}

/// Gives free pages back to the system, once.
pub fn give_pages_back() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: may be called at any time, from any thread.
    unsafe {
        calls::mi_collect(true);
    }
}

/// An allocator that draws what it gives from the accounts of `base::memory`.
///
/// `#[global_allocator] static A: Metered<MiMalloc> = Metered(MiMalloc);`
pub struct Metered<A>(pub A);

mod metered {
    use super::Metered;
    use base::memory::took;
    use std::alloc::{GlobalAlloc, Layout};

    // SAFETY: the allocator inside does the work; `took` allocates nothing and does not panic.
    unsafe impl<A: GlobalAlloc> GlobalAlloc for Metered<A> {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller promised.
            let p = unsafe { self.0.alloc(layout) };
            if !p.is_null() {
                took(layout.size() as isize);
            }
            p
        }

        #[inline]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller promised.
            let p = unsafe { self.0.alloc_zeroed(layout) };
            if !p.is_null() {
                took(layout.size() as isize);
            }
            p
        }

        #[inline]
        unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            // SAFETY: as the caller promised; it has `p` from here, so from there.
            let new = unsafe { self.0.realloc(p, layout, new_size) };
            if !new.is_null() {
                took(new_size as isize - layout.size() as isize);
            }
            new
        }

        #[inline]
        unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
            took(-(layout.size() as isize));
            // SAFETY: as in `realloc`.
            unsafe { self.0.dealloc(p, layout) }
        }
    }
}

/// The system's allocator, which counts. For a test's process: `#[global_allocator] static A: Counting = Counting;`.
#[cfg(feature = "counting")]
pub struct Counting;

#[cfg(feature = "counting")]
mod counting {
    use super::Counting;
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicU64, Ordering};

    static CALLS: AtomicU64 = AtomicU64::new(0);

    impl Counting {
        /// Allocations so far by all threads, larger ones in the place of smaller ones (`realloc`) included.
        pub fn calls() -> u64 {
            CALLS.load(Ordering::Relaxed)
        }
    }

    // SAFETY: the system's allocator does the work.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            CALLS.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as the caller promised.
            unsafe { System.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            CALLS.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as the caller promised.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            CALLS.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as the caller promised; it has `p` from here, so from there.
            unsafe { System.realloc(p, layout, new_size) }
        }

        unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
            // SAFETY: as in `realloc`.
            unsafe { System.dealloc(p, layout) }
        }
    }
}
