/* Waiting for rows and for room (native/core/memory/wake.cpp, native/core/store/store.cpp wait_change, publish.cpp reserve,
   transferqueue/waiting.py).

   A waiter reads the word, then the partition's version, looks at the condition and sleeps; two producers commit, bump and
   wake, and may be killed in between; a third party clears the partition, which then may be made again. Time is ticks: one
   passes when nobody else can move, or at any time before that.

   Checked: no wake is lost while the producers live; where one died, what it committed is found within a tick all the same;
   nobody is told of a timeout while it is there; nobody sleeps beyond the deadline.

   MUTANT 1 wake_before_commit: the producer bumps before it commits
   MUTANT 2 word_after_look: the waiter reads the word after it looked
   MUTANT 3 no_compare: the kernel does not compare the word when it puts the waiter to sleep
   MUTANT 4 no_tick: a waiter without a deadline sleeps until it is woken
   MUTANT 5 tick_without_version: at a tick only the word is compared
   MUTANT 6 version_starts_over: a partition that is made again has the version that the cleared one had
   MUTANT 7 no_last_look: at the deadline the waiter gives up without another look
   MUTANT 8 wakes_one: a bump wakes one sleeper only
   MUTANT 9 slice_beyond_deadline: slices are not cut to the time that is left */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define DEADLINE 3
#define SLICE 2
#define EARLY 3

byte word, version = 2;
bit there;                 /* the row that is waited for */
bit asleep[2];
byte now;
bit death;                 /* somebody was killed between commit and wake */
bit found[2];              /* ghost: the waiter has it */
byte there_since;          /* ghost: when it was committed */

inline wake() {            /* bump_word */
  d_step { word++; if :: M(8) && asleep[0] -> asleep[0] = 0 :: else -> asleep[0] = 0; asleep[1] = 0 fi }
}

/* One commits the row; the other something that is not waited for, or clears the partition. */
proctype Producer(byte what) {
  if :: M(1) -> wake() :: else fi;
  d_step {
    if
    :: what == 0 -> there = 1; there_since = now; version++
    :: what == 1 -> version++
    fi
  };
  if
  :: M(1)
  :: !M(1) -> wake()
  ::  death = 1                                      /* SIGKILL between commit and wake */
  fi
}

/* clear_partition, then a put that makes it again: two commits of processes that die before they wake anybody */
proctype Clearer() {
  d_step { version = 0; there = 0; death = 1 };
  if
  :: M(6) -> version = 1
  :: else -> version = 10                            /* the partition's id is part of it: never again the same */
  fi
}

/* wait_until and sleep_here; `timed` has a deadline */
proctype Waiter(byte i; bit timed) {
  byte seen, seen_version, until; bit over, result;
look:
  over = timed && now >= DEADLINE;
  if :: M(2) -> result = there :: else fi;
  seen = word;
  seen_version = version;
  if :: M(2) :: else -> result = there fi;
  if
  :: result ->
     assert(now <= there_since + SLICE + EARLY || i == 0);
     found[i] = 1;
     goto done
  :: else
  fi;
  if
  :: over || (M(7) && timed && now >= DEADLINE) ->
     assert(!there || there_since >= DEADLINE);      /* a timeout only when it was not there at the deadline */
     goto done
  :: else
  fi;
  do
  :: timed && now >= DEADLINE ->
     if :: M(7) -> assert(!there || there_since >= DEADLINE); goto done :: else -> goto look fi
  :: else ->
     d_step { until = now + SLICE;
     if :: M(4) && !timed -> until = 255 :: else fi;
     if :: timed && until > DEADLINE && !M(9) -> until = DEADLINE :: else fi };
     assert(!timed || until <= DEADLINE);
     d_step { if :: word == seen || M(3) -> asleep[i] = 1 :: else fi };   /* FUTEX_WAIT compares under its own lock */
     if
     :: !asleep[i]                                   /* woken, or not put to sleep */
     :: d_step { asleep[i] && now >= until -> asleep[i] = 0 }
     fi;
     until = 0;
     if
     :: word != seen -> goto look
     :: word == seen && !M(5) && version != seen_version -> goto look      /* wait_change */
     :: else
     fi
  od;
done:
  skip
}

/* Time passes when nobody can do anything else; a little of it at any moment. */
proctype Clock() {
  do
  :: now < EARLY -> now++
  :: timeout -> assert(death || !there || !(asleep[0] || asleep[1]));   /* no wake was lost */
     if :: now < 8 -> now++ :: else -> break fi
  od;
  assert(!there || found[1])                         /* who has no deadline has it */
}

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic {
    run Clock(); run Producer(0);
    if
    :: run Waiter(0, 1); run Producer(1); run Clearer(); found[1] = 1
    :: run Waiter(1, 0); run Producer(1); run Clearer()
    :: run Waiter(0, 1); run Waiter(1, 0)
    fi
  }
}
