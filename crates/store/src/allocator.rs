//! The program's allocator, told how to treat the memory that rows have left.
//!
//! mimalloc gives free pages back to the system after a second. Versions come and go at the pace of the writes, so in a database that
//! works these are pages that are wanted again at once, and each comes back as two megabytes of zeros: measured, 15 percent of a
//! replica's CPU, in a burst every second. So freed pages are kept ([`keep_freed_pages`]), and given back when the rows have
//! shrunk to a half ([`crate::Memory::has_shrunk`], [`give_pages_back`]).
//!
//! [`Mimalloc`] calls it the short way, and [`Metered`] draws each allocation from the account of the session that makes it. A block of
//! [`LARGE`] bytes or more is mapped for itself and goes back to the system when it is freed: kept, such blocks of sixteen sessions that
//! made texts of 60 MB and more stood at 6.7 GB, because a block that grew fits nowhere where a smaller one was.
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

/// Blocks of so many bytes are the system's own. At least twice the step of `base::memory`, so that counting one always takes the long way.
const LARGE: usize = 4 << 20;

/// Freed pages stay with the process from now on. To be called once, before there are other threads.
pub fn keep_freed_pages() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: the option is there in this version of the library and takes any number. It is not atomic, and the caller has no
    // other threads yet.
    unsafe {
        calls::mi_option_set(calls::PURGE_DELAY, calls::NEVER);
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: takes any number. Set by hand the bound stays; left alone it grows with the blocks that are freed.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE as libc::c_int);
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

/// mimalloc, asked for an alignment only where it would not give it by itself. Its calls with an alignment take a longer way whenever
/// the next free block is not at hand.
///
/// `#[global_allocator] static A: Metered<Mimalloc> = Metered(Mimalloc);`
#[cfg(feature = "mimalloc")]
pub struct Mimalloc;

#[cfg(feature = "mimalloc")]
mod mimalloc {
    use super::Mimalloc;
    use libmimalloc_sys as mi;
    use std::alloc::{GlobalAlloc, Layout};

    /// `MI_MAX_ALIGN_SIZE`: every block of at least as many bytes is aligned so. A smaller one is aligned to its size in words.
    const BY_ITSELF: usize = 16;

    #[inline]
    fn by_itself(size: usize, align: usize) -> bool {
        align <= BY_ITSELF && align <= size
    }

    // SAFETY: mimalloc does the work; what it gives by itself is aligned as `by_itself` says, for the rest it is told.
    unsafe impl GlobalAlloc for Mimalloc {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let (size, align) = (layout.size(), layout.align());
            // SAFETY: takes any size; the alignment is a power of two.
            let p = unsafe {
                match by_itself(size, align) {
                    true => mi::mi_malloc(size),
                    false => mi::mi_malloc_aligned(size, align),
                }
            };
            p.cast()
        }

        #[inline]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            let (size, align) = (layout.size(), layout.align());
            // SAFETY: as above.
            let p = unsafe {
                match by_itself(size, align) {
                    true => mi::mi_zalloc(size),
                    false => mi::mi_zalloc_aligned(size, align),
                }
            };
            p.cast()
        }

        #[inline]
        unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            let align = layout.align();
            // SAFETY: the caller has `p` from here. A block that stays where it is keeps its alignment.
            let new = unsafe {
                match by_itself(new_size, align) {
                    true => mi::mi_realloc(p.cast(), new_size),
                    false => mi::mi_realloc_aligned(p.cast(), new_size, align),
                }
            };
            new.cast()
        }

        #[inline]
        unsafe fn dealloc(&self, p: *mut u8, _: Layout) {
            // SAFETY: the caller has `p` from here.
            unsafe { mi::mi_free(p.cast()) }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn blocks_are_aligned_as_asked_also_after_they_grew() {
            for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
                for size in (1..600).chain([1000, 4000, 9000, 40_000, 1 << 20]) {
                    let layout = Layout::from_size_align(size, align).expect("small");
                    // SAFETY: the layout is not empty, and each block is given back as it was last.
                    unsafe {
                        let all: Vec<*mut u8> = (0..9).map(|_| Mimalloc.alloc(layout)).collect();
                        for p in all {
                            assert_eq!(p as usize % align, 0, "{size} bytes");
                            p.write_bytes(1, size);
                            let p = Mimalloc.realloc(p, layout, 3 * size);
                            assert_eq!(p as usize % align, 0, "{size} bytes and more");
                            assert_eq!(*p.add(size - 1), 1);
                            let grown = Layout::from_size_align(3 * size, align).expect("small");
                            Mimalloc.dealloc(p, grown);
                        }
                        let p = Mimalloc.alloc_zeroed(layout);
                        assert_eq!((p as usize % align, *p.add(size - 1)), (0, 0));
                        Mimalloc.dealloc(p, layout);
                    }
                }
            }
        }
    }
}

/// An allocator that draws what it gives from the accounts of `base::memory`.
///
/// The bytes are counted before the allocator inside is called, so that the call is the last thing that is done here: no caller keeps
/// registers for what comes after. What is not given is taken off again where the process is told of it, which is so for all that is
/// large; a small block (under 128 KiB) that the system refuses stays counted.
pub struct Metered<A>(pub A);

mod metered {
    use super::{LARGE, Metered};
    use base::memory::{count, flush};
    use std::alloc::{GlobalAlloc, Layout, System};

    /// After the call that counted `bytes`: they were not given if this is null.
    fn tell(p: *mut u8, bytes: isize) -> *mut u8 {
        if p.is_null() {
            count(-bytes);
        }
        flush();
        p
    }

    impl<A: GlobalAlloc> Metered<A> {
        #[cold]
        #[inline(never)]
        unsafe fn alloc_and_tell(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller promised.
            let p = unsafe {
                match layout.size() < LARGE {
                    true => self.0.alloc(layout),
                    false => System.alloc(layout),
                }
            };
            tell(p, layout.size() as isize)
        }

        #[cold]
        #[inline(never)]
        unsafe fn alloc_zeroed_and_tell(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller promised.
            let p = unsafe {
                match layout.size() < LARGE {
                    true => self.0.alloc_zeroed(layout),
                    false => System.alloc_zeroed(layout),
                }
            };
            tell(p, layout.size() as isize)
        }

        #[cold]
        #[inline(never)]
        unsafe fn realloc_and_tell(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            // SAFETY: as the caller promised.
            let new = unsafe { self.0.realloc(p, layout, new_size) };
            tell(new, new_size as isize - layout.size() as isize)
        }

        #[cold]
        #[inline(never)]
        unsafe fn dealloc_and_tell(&self, p: *mut u8, layout: Layout) {
            flush();
            // SAFETY: as the caller promised; a large block has the system's.
            unsafe {
                match layout.size() < LARGE {
                    true => self.0.dealloc(p, layout),
                    false => System.dealloc(p, layout),
                }
            }
        }

        /// A block that is large, or will be. One that stays large stays the system's, which moves pages and copies nothing.
        #[cold]
        #[inline(never)]
        unsafe fn realloc_large(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            if layout.size() >= LARGE && new_size >= LARGE {
                count(new_size as isize - layout.size() as isize);
                // SAFETY: as the caller promised.
                let new = unsafe { System.realloc(p, layout, new_size) };
                return tell(new, new_size as isize - layout.size() as isize);
            }
            // SAFETY: the caller promised that the size does not overflow with the alignment. The new block has room for the smaller of both.
            unsafe {
                let new = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
                if !new.is_null() {
                    std::ptr::copy_nonoverlapping(p, new, layout.size().min(new_size));
                    self.dealloc(p, layout);
                }
                new
            }
        }
    }

    // SAFETY: the allocator inside does the work; what counts allocates nothing and does not panic.
    unsafe impl<A: GlobalAlloc> GlobalAlloc for Metered<A> {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let tell = count(layout.size() as isize);
            // SAFETY: as the caller promised.
            unsafe {
                match tell {
                    false => self.0.alloc(layout),
                    true => self.alloc_and_tell(layout),
                }
            }
        }

        #[inline]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            let tell = count(layout.size() as isize);
            // SAFETY: as the caller promised.
            unsafe {
                match tell {
                    false => self.0.alloc_zeroed(layout),
                    true => self.alloc_zeroed_and_tell(layout),
                }
            }
        }

        #[inline]
        unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            if layout.size().max(new_size) >= LARGE {
                // SAFETY: as the caller promised.
                return unsafe { self.realloc_large(p, layout, new_size) };
            }
            let tell = count(new_size as isize - layout.size() as isize);
            // SAFETY: as the caller promised; it has `p` from here, so from there.
            unsafe {
                match tell {
                    false => self.0.realloc(p, layout, new_size),
                    true => self.realloc_and_tell(p, layout, new_size),
                }
            }
        }

        #[inline]
        unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
            let tell = count(-(layout.size() as isize));
            // SAFETY: as in `realloc`.
            unsafe {
                match tell {
                    false => self.0.dealloc(p, layout),
                    true => self.dealloc_and_tell(p, layout),
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use base::memory::mine;

        /// Gives nothing.
        struct Empty;

        // SAFETY: it gives nothing.
        unsafe impl GlobalAlloc for Empty {
            unsafe fn alloc(&self, _: Layout) -> *mut u8 {
                std::ptr::null_mut()
            }
            unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
        }

        #[test]
        fn what_is_large_and_not_given_is_not_counted() {
            let layout = Layout::from_size_align(LARGE - 1, 8).expect("not too large");
            let before = mine();
            // SAFETY: nothing comes of it.
            unsafe {
                assert!(Metered(Empty).alloc(layout).is_null());
                assert_eq!(mine(), before);
                assert!(Metered(Empty).alloc_zeroed(layout).is_null());
            }
            assert_eq!(mine(), before);
        }

        /// Refuses what is not its own.
        struct SmallOnly;

        // SAFETY: the system's allocator does the work.
        unsafe impl GlobalAlloc for SmallOnly {
            unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
                assert!(layout.size() < LARGE);
                // SAFETY: as the caller promised.
                unsafe { System.alloc(layout) }
            }
            unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
                assert!(layout.size() < LARGE);
                // SAFETY: as the caller promised.
                unsafe { System.dealloc(p, layout) }
            }
        }

        #[test]
        fn a_block_keeps_its_bytes_when_it_becomes_large_and_small_again() {
            let before = mine();
            let sizes = [
                100,
                LARGE - 1,
                LARGE,
                3 * LARGE,
                9 * LARGE,
                2 * LARGE,
                LARGE - 1,
                LARGE + 1,
                50,
            ];
            let layout = |size| Layout::from_size_align(size, 8).expect("not too large");
            // SAFETY: each block is written and read within its size, and given back as it was last.
            unsafe {
                let mut p = Metered(SmallOnly).alloc(layout(sizes[0]));
                p.write_bytes(7, 50);
                for pair in sizes.windows(2) {
                    p = Metered(SmallOnly).realloc(p, layout(pair[0]), pair[1]);
                    assert_eq!((*p, *p.add(49)), (7, 7));
                    p.add(pair[1] - 1).write(9);
                    p.write_bytes(7, 50);
                    assert_eq!(mine() - before, pair[1] as isize);
                }
                Metered(SmallOnly).dealloc(p, layout(50));
            }
            assert_eq!(mine(), before);
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
