/* Views and the mappings that are kept for the next ones (native/core/memory/private_mapping.cpp, kept_mappings.cpp,
   mapping_keeper.cpp).

   A private mapping is in use (live), queued by the deleter of its last tensor (dropping), looked at by the keeper's thread,
   and then kept or gone (free). Two threads get, one of them maybe writes, and drop; the keeper looks and sleeps; meanwhile the extent
   becomes another block's. Loads of `head` and `sleeps` may be old until the storing thread fences, as in lease.pml.

   MUTANT 1 kept_without_look: a mapping is kept whether or not it was written
   MUTANT 2 queued_while_alive: the deleter of a tensor queues the mapping while another tensor is alive
   MUTANT 3 stays_in_the_list: taking a kept mapping does not remove it
   MUTANT 4 no_fence_in_push: the pusher looks whether the keeper sleeps before its push is seen
   MUTANT 5 no_fence_in_serve: the keeper looks at the queue before it is seen to sleep
   MUTANT 6 word_read_late: the keeper reads its word after it looked at the queue, and waits for that
   MUTANT 7 lease_first: the lease is given up while a tensor still reads the mapping */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define MAPPINGS 2
#define GONE 0
#define LIVE 1
#define QUEUED 2
#define KEPT 3

byte state[MAPPINGS];      /* of the first: kept, from an earlier view */
bit written[MAPPINGS];     /* it has a page of its own */
bit queued[MAPPINGS];      /* the stack under head_ */
bit old_queued[MAPPINGS];  /* what the keeper's plain loads may miss: pushed, not yet seen */
bit sleeps, old_sleeps;    /* old: the pusher's loads still see false */
bit asleep;
byte word;
byte file = 1;             /* what the extent's bytes are: the block that lies there */
byte leases;               /* on block 1 */
byte users[MAPPINGS];      /* ghost: how many views rely on it */

proctype Getter(byte writes) {
  byte m;
  leases++;                                          /* lease.pml */
  if
  :: file == 1
  :: else -> leases--; goto end_gone                 /* resolved anew */
  fi;
  atomic {                                           /* KeptMappings::take under its mutex, else a fresh one */
    if
    :: state[0] == KEPT -> m = 0
    :: state[1] == KEPT -> m = 1
    :: else -> if :: state[0] == GONE -> m = 0; written[0] = 0 :: state[1] == GONE -> m = 1; written[1] = 0 fi
    fi;
    if :: M(3) && state[m] == KEPT :: else -> state[m] = LIVE fi;
    users[m]++;
    assert(users[m] == 1);                           /* a private page has one owner */
    assert(!written[m])                              /* every get returns the stored bytes */
  };
  if :: M(2) -> d_step { state[m] = QUEUED; queued[m] = 1 }; goto released :: else fi;
  if :: writes -> written[m] = 1 :: skip fi;
  if :: M(7) -> leases-- :: else fi;
  assert(written[m] || file == 1);                   /* the last look */
  d_step { users[m]--; state[m] = QUEUED; queued[m] = 1; old_queued[m] = 1 };   /* ~PrivateMapping: push */
released:
  if :: M(4) :: else -> old_queued[m] = 0 fi;        /* full_fence */
  if
  :: sleeps && !old_sleeps -> d_step { word++; asleep = 0 }                     /* bump_word */
  :: else
  fi;
  if :: M(2) -> written[m] = writes; assert(users[m] == 1); users[m]-- :: else fi;
  if :: M(7) :: else -> leases-- fi;                 /* ~Claim: after the mapping is out of use */
end_gone:
  skip
}

proctype Keeper() {
  byte seen, m;
end:
  do
  :: seen = word;
     if :: M(6) -> seen = 255 :: else fi;
look:
     if                                              /* look_at_one: an acquire exchange on head_, newest value */
     :: atomic { queued[0] && !old_queued[0] -> queued[0] = 0; m = 0 }
     :: atomic { queued[1] && !old_queued[1] -> queued[1] = 0; m = 1 }
     :: else -> goto nothing
     fi;
     if
     :: written[m] && !M(1) -> state[m] = GONE
     :: else -> state[m] = KEPT
     fi;
     goto look;
nothing:
     skip;
     d_step { sleeps = 1; old_sleeps = 1 };
     if :: M(5) :: else -> old_sleeps = 0 fi;        /* full_fence */
     if
     :: (queued[0] && !old_queued[0]) || (queued[1] && !old_queued[1])
     :: else ->
        if :: M(6) -> seen = word :: else fi;
        d_step { if :: word == seen -> asleep = 1 :: else fi };
end_asleep:
        !asleep
     fi;
     d_step { sleeps = 0; old_sleeps = 0; seen = 0; m = 0 }
  od
}

/* The row is cleared; when nobody leases the block, another one takes its place. */
proctype Reuse() { atomic { leases == 0 -> file = 2 } }

proctype Memory() {
end:
  do
  :: old_queued[0] -> old_queued[0] = 0
  :: old_queued[1] -> old_queued[1] = 0
  :: old_sleeps -> old_sleeps = 0
  od
}

proctype Judge() { timeout -> assert(!queued[0] && !queued[1]) }   /* nothing waits for a keeper that sleeps */

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic { state[0] = KEPT; run Keeper(); run Memory(); run Getter(0); run Getter(1); run Reuse(); run Judge() }
}
