/* The write gate and the locks in front of it (native/core/memory/robust_lock.cpp, write_gate.cpp, native/core/store/room.cpp,
   spill.cpp, native/core/index/txn.cpp).

   Robust mutexes: when the holder dies the kernel hands the lock to the next one with EOWNERDEAD, who marks it consistent.
   Behind the gate a transaction (a shadow page, then the commit in one store: LMDB) that a death undoes. Two processes put, a
   third backs more of the segment (growth lock, then the gate), a fourth spills (spill lock, growth lock, gate); any one may be
   killed anywhere, with the locks in its hands.

   MUTANT 1 not_robust: a dead holder's lock is not handed on
   MUTANT 2 not_made_consistent: after EOWNERDEAD the lock is unlocked without having been made consistent: nobody gets it again
   MUTANT 3 spins_on_the_pid: who waits trusts the holder's pid, which the dead left there, and never sleeps on the lock
   MUTANT 4 growth_inside_gate: a put that finds no room takes the growth lock inside its transaction
   MUTANT 5 writes_in_place: a transaction changes the committed pages
   MUTANT 6 unlocks_anothers: the lock is unlocked a second time, by a process that gave it up before
   MUTANT 7 spill_inside_growth: who backs more of the segment spills with the growth lock in its hands */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define GATE 0
#define GROWTH 1
#define SPILL 2
#define BROKEN 99

byte holder[3];            /* the mutex itself: pid of the model, 0: free */
byte pid_word[3];          /* holder_pid: for messages, and what a spinning process looks at */
bit owner_died[3];
bit killed[8];
byte a = 0, b = 0;         /* two committed pages that every transaction changes together */
byte shadow_a, shadow_b;
bit in_transaction;        /* ghost: the shadow pages are somebody's */
bit done[8];

inline lock(l) {
  if
  :: M(3) -> atomic { pid_word[l] == 0 && holder[l] == 0 -> holder[l] = _pid }
  :: else ->
     atomic {                                        /* trylock, or timedlock after spinning: the kernel's word decides */
       holder[l] == 0 || (holder[l] != BROKEN && killed[holder[l]] && !M(1));
       owner_died[l] = holder[l] != 0;
       holder[l] = _pid
     }
  fi;
  pid_word[l] = _pid
}

inline unlock(l) {
  pid_word[l] = 0;
  d_step {
    assert(holder[l] == _pid || M(6));
    if :: M(2) && owner_died[l] -> holder[l] = BROKEN :: else -> holder[l] = 0 fi;
    owner_died[l] = 0
  }
}

inline transaction() {
  d_step { assert(!in_transaction || killed[last]); in_transaction = 1; last = _pid;
           shadow_a = a; shadow_b = b };             /* mdb_txn_begin: from the last commit */
  assert(shadow_a == shadow_b);
  shadow_a++;
  if :: M(5) -> a = shadow_a :: else fi;
  shadow_b++;
  d_step { a = shadow_a; b = shadow_b; in_transaction = 0 }   /* the meta page */
}
byte last;

proctype Put() provided (!killed[_pid]) {
  lock(GATE);
  if :: M(4) -> lock(GROWTH); unlock(GROWTH) :: else fi;
  transaction();
  unlock(GATE);
  if :: M(6) -> d_step { holder[GATE] = 0; owner_died[GATE] = 0 } :: else fi;
  done[_pid] = 1
}

proctype Grow() provided (!killed[_pid]) {
  lock(GROWTH);                                      /* back_more: posix_fallocate, then index.grow */
  if :: M(7) -> lock(SPILL); unlock(SPILL) :: else fi;
  lock(GATE);
  transaction();
  unlock(GATE);
  unlock(GROWTH);
  done[_pid] = 1
}

proctype Spill() provided (!killed[_pid]) {
  lock(SPILL);                                       /* spill_cold */
  lock(GROWTH);                                      /* grow_spill_file */
  lock(GATE);
  transaction();
  unlock(GATE);
  unlock(GROWTH);
  unlock(SPILL);
  done[_pid] = 1
}

proctype Killer(byte victim) { d_step { !done[victim] -> killed[victim] = 1 } }

/* Everybody who lives gets through. */
proctype Judge() {
  timeout ->
  assert((done[1] || killed[1]) && (done[2] || killed[2]) && (done[3] || killed[3]) && (done[4] || killed[4]));
  assert(a == b && a >= done[1] + done[2] + done[3] + done[4])
}

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic {
    run Put(); run Put(); run Grow(); run Spill(); run Judge();
    if :: run Killer(1) :: run Killer(3) :: run Killer(4) fi
  }
}
