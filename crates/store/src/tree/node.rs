//! Nodes: a header with latch and level, the slots, and in inner nodes the children.
//!
//! A child `i` of an inner node holds the keys from separator `i - 1` (inclusive) to separator `i` (exclusive). The level
//! of a node (0 is a leaf) never changes, and a child's is one less than its parent's, in torn reads too; so who knows a
//! node's level knows its type. Nodes are passed about as raw pointers to the header, which keep the provenance of the whole.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use env::sync::atomic::{AtomicPtr, Ordering};

use super::Entry;
use super::latch::{Attempt, Latch, Restart};
use super::slots::{CAPACITY, Slots};

#[repr(C)]
pub(super) struct Node {
    pub latch: Latch,
    pub level: u32,
}

#[repr(C, align(64))]
pub(super) struct Leaf<E> {
    pub node: Node,
    pub slots: Slots<E>,
}

#[repr(C, align(64))]
pub(super) struct Inner {
    pub node: Node,
    pub slots: Slots<Separator>,
    children: [AtomicPtr<Node>; CAPACITY + 1],
}

pub(super) type NodePtr = NonNull<Node>;

impl<E: Entry> Leaf<E> {
    pub fn alloc() -> NodePtr {
        let leaf = Leaf {
            node: Node {
                latch: Latch::new(),
                level: 0,
            },
            slots: Slots::<E>::new(),
        };
        NonNull::from(Box::leak(Box::new(leaf))).cast()
    }

    /// # Safety
    /// `node` is a leaf with entries of type `E`, and stays allocated for `'g`.
    #[inline]
    pub unsafe fn at<'g>(node: NodePtr) -> &'g Leaf<E> {
        // SAFETY: the caller's promise; `Leaf` begins with its `Node`.
        unsafe { node.cast().as_ref() }
    }
}

impl Inner {
    pub fn alloc(level: u32) -> NodePtr {
        assert!(level > 0, "level 0 is for leaves");
        let inner = Inner {
            node: Node {
                latch: Latch::new(),
                level,
            },
            slots: Slots::new(),
            children: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        };
        NonNull::from(Box::leak(Box::new(inner))).cast()
    }

    /// # Safety
    /// `node` is an inner node, and stays allocated for `'g`.
    #[inline]
    pub unsafe fn at<'g>(node: NodePtr) -> &'g Inner {
        // SAFETY: the caller's promise; `Inner` begins with its `Node`.
        unsafe { node.cast().as_ref() }
    }

    /// Asks for the lines of the heads and of the children: which child it is shows only when the heads are there.
    #[inline]
    pub fn prefetch(&self) {
        self.slots.prefetch();
        for child in self.children.iter().step_by(8) {
            super::prefetch(child);
        }
    }

    /// Null only in a torn read.
    #[inline]
    pub fn child(&self, index: usize) -> Attempt<NodePtr> {
        NonNull::new(self.children[index].load(Ordering::Acquire)).ok_or(Restart)
    }

    /// Locked, or not yet in the tree.
    pub fn set_child(&self, index: usize, child: NodePtr) {
        self.children[index].store(child.as_ptr(), Ordering::Release);
    }

    /// Locked. A new child at `index + 1`, behind a new separator at `index`.
    pub fn insert(&self, index: usize, separator: NonNull<Separator>, right: NodePtr) {
        for i in (index + 1..=self.slots.count()).rev() {
            self.children[i + 1].store(self.children[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.set_child(index + 1, right);
        self.slots.insert(index, separator);
    }

    /// Locked. Takes out child `index` and a separator beside it: a neighbour inherits its range. There are two or more.
    pub fn remove(&self, index: usize) -> NonNull<Separator> {
        let count = self.slots.count();
        assert!(count > 0 && index <= count, "an inner node keeps one child");
        for i in index + 1..=count {
            self.children[i - 1].store(self.children[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.children[count].store(ptr::null_mut(), Ordering::Release);
        self.slots.remove(index.saturating_sub(1))
    }

    /// Locked. Moves the separators behind `middle` and their children to `right`, which is new; returns the one in the
    /// middle, which goes up.
    pub fn split(&self, middle: usize, right: &Inner) -> NonNull<Separator> {
        let count = self.slots.count();
        assert!(middle < count, "the middle of a split is a separator");
        for i in middle + 1..=count {
            right.children[i - middle - 1]
                .store(self.children[i].load(Ordering::Relaxed), Ordering::Release);
            self.children[i].store(ptr::null_mut(), Ordering::Release);
        }
        self.slots.move_tail(middle + 1, &right.slots);
        self.slots.remove(middle)
    }
}

/// Frees a node, not what it points to.
///
/// # Safety
/// `node` came from `Leaf::<E>::alloc` or `Inner::alloc`, and nobody can reach it any more.
pub(super) unsafe fn free<E: Entry>(node: NodePtr) {
    // SAFETY: by the caller's promise the pointer is a leaked box of the type that its level tells, and the last one.
    unsafe {
        match node.as_ref().level {
            0 => drop(Box::from_raw(node.cast::<Leaf<E>>().as_ptr())),
            _ => drop(Box::from_raw(node.cast::<Inner>().as_ptr())),
        }
    }
}

pub(super) fn size_of_node<E>(level: u32) -> usize {
    if level == 0 {
        size_of::<Leaf<E>>()
    } else {
        size_of::<Inner>()
    }
}

/// A key that parts two children; the shortest that does. One allocation: its length, then its bytes.
#[repr(C)]
pub(super) struct Separator {
    len: usize,
}

impl Separator {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(size_of::<usize>() + len, align_of::<usize>())
            .expect("a key's length")
    }

    /// The shortest key that is above `left` and not above `right`.
    pub fn between(left: &[u8], right: &[u8]) -> NonNull<Separator> {
        assert!(left < right, "the keys of a node ascend");
        Self::new(&right[..super::slots::shared_len(left, right) + 1])
    }

    fn new(key: &[u8]) -> NonNull<Separator> {
        let layout = Self::layout(key.len());
        // SAFETY: the layout is not of size zero; it has room for the length and the bytes behind it.
        unsafe {
            let Some(separator) = NonNull::new(alloc(layout).cast::<Separator>()) else {
                handle_alloc_error(layout)
            };
            separator.write(Separator { len: key.len() });
            ptr::copy_nonoverlapping(key.as_ptr(), separator.as_ptr().add(1).cast(), key.len());
            separator
        }
    }

    pub fn size(&self) -> usize {
        size_of::<usize>() + self.len
    }
}

// SAFETY: the bytes are written before the separator is published and never again.
unsafe impl Entry for Separator {
    #[inline]
    fn key(&self) -> &[u8] {
        // SAFETY: `new` wrote `len` bytes behind the length. All references to a separator come from the pointer of the
        // whole allocation (`NonNull::as_ref` of what `new` returned).
        unsafe { std::slice::from_raw_parts(ptr::from_ref(self).add(1).cast(), self.len) }
    }

    unsafe fn free(separator: NonNull<Self>) {
        // SAFETY: the caller gives up the last pointer to what `new` allocated with this layout.
        unsafe {
            dealloc(
                separator.cast().as_ptr(),
                Self::layout(separator.as_ref().len),
            )
        }
    }
}
