/* The life of a block and who cleans up after whom (native/core/store/publish.cpp, pending_block.cpp, give_back.cpp,
   native/core/index/reserve.cpp, publish.cpp, space.cpp).

   free -> reserved (pending) -> published -> retired -> free. Two producers put the same row one after the other, two house
   keepers reap and reclaim; one of the four, or two of three, may be killed at any step (inside a transaction: it did not happen). In the
   end one more process cleans up, and then every byte has one owner, the row has the bytes of the last commit, and nothing is
   left of the dead. Leases are in lease.pml; here nobody holds one. (The word of a free slot may still say `live`, when producer
   and reaper both died: no cell ever named that generation, and the next set_live is a store.)

   MUTANT 1 reaps_the_living: pending space is given back without a look at the lock
   MUTANT 2 free_before_commit: the word is set free while its block is still listed as retired
   MUTANT 3 plain_set_free: set_free stores, whatever incarnation the word is of
   MUTANT 4 live_after_commit: the word is set live after the publication
   MUTANT 5 retired_before_commit: the word of the old block is set before the transaction that retires it
   MUTANT 6 file_removed_first: a reaper removes the lease file before it gives the space back, and nobody looks for
     space that is pending under no file
   MUTANT 7 two_transactions: the space becomes free in one transaction and its pending record goes in another
   MUTANT 8 death_is_final: nobody reaps */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define WORD(g, state) ((g) * 4 + (state))
#define FREE 0
#define LIVE 1
#define RETIRED 2
#define SLOTS 2

/* the index */
byte cell;                 /* generation that the row's cell names; 0: no such row */
byte next_gen = 1;
byte owner[SLOTS];         /* whose the extent is: a generation, 0: free */
byte pending[2];           /* by producer: slot + 1 */
byte retired[SLOTS];       /* generation listed as retired */
/* shared memory */
byte word[SLOTS], bytes[SLOTS];
bit file[2];               /* lease files of the producers */
/* who is dead, by pid of the model: 1 and 2 produce, 3 and 4 keep house */
bit killed[8];
byte committed;            /* ghost: the generation that the last commit published */
bit done[6];               /* by pid of the model */

inline set_free(s, g) {
  d_step { if :: M(3) || word[s] == WORD(g, RETIRED) || word[s] == WORD(g, LIVE) -> word[s] = WORD(g, FREE) :: else fi }
}

inline free_retired(s, g) {
  d_step { if :: ours && retired[s] == g -> assert(owner[s] == g); retired[s] = 0; owner[s] = 0 :: else fi }
}

/* retire_blocks, for what one transaction listed or found listed in slot s */
inline retire_block(s, g) {
  d_step {                                           /* BlockTable::set_retired */
    if :: word[s] == WORD(g, LIVE) -> word[s] = WORD(g, RETIRED) :: else fi;
    ours = (word[s] == WORD(g, RETIRED))             /* else a later incarnation: freed by somebody else */
  };
  if
  :: ours && !M(2) -> free_retired(s, g); set_free(s, g); ours = 0
  :: ours && M(2) -> set_free(s, g); free_retired(s, g)
  :: else
  fi
}

inline give_pending_back(p) {                        /* index.abandon_owner */
  s = 0; g = 0;
  if
  :: pending[p] != 0 ->
     s = pending[p] - 1; g = owner[s];
     owner[s] = 0;
     if :: !M(7) -> pending[p] = 0 :: else fi
  :: else
  fi
}

/* reap_dead, for one producer. Dead is for ever, so asking and giving back are one step. */
inline reap(p) {
  if
  :: d_step {
       !M(8) && ((file[p] && (killed[p + 1] || M(1))) || (!file[p] && pending[p] != 0 && !M(6))) ->
       if :: M(6) -> file[p] = 0 :: else -> give_pending_back(p) fi
     };
     if :: M(6) -> d_step { give_pending_back(p) } :: M(7) -> pending[p] = 0 :: else fi;
     if :: g != 0 -> set_free(s, g) :: else fi;      /* it may have died between the word and the commit */
     d_step { file[p] = 0; s = 0; g = 0 }            /* last: if we die before, the next reaper finds it again */
  :: else
  fi
}

proctype Producer(byte p) provided (!killed[_pid]) {
  byte s, g, old, old_slot; bit ours;
  file[p] = 1;                                       /* LeaseFile::File::make, before the first transaction */
  atomic {                                           /* index.reserve; waits for room */
    owner[0] == 0 || owner[1] == 0;
    d_step {
      if :: owner[0] == 0 -> s = 0 :: else -> s = 1 fi;
      g = next_gen; next_gen++;
      assert(pending[1 - p] != s + 1);
      owner[s] = g; pending[p] = s + 1
    }
  };
  d_step { assert(owner[s] == g); bytes[s] = g };    /* PendingBlock::copy_in */
  if :: M(4) -> skip :: else -> word[s] = WORD(g, LIVE) fi;   /* Publication: set_live */
  if
  :: M(5) && cell != 0 ->
     d_step { old = cell; old_slot = (owner[0] == old -> 0 : 1);
              if :: word[old_slot] == WORD(old, LIVE) -> word[old_slot] = WORD(old, RETIRED) :: else fi; old = 0 }
  :: else
  fi;
  d_step {                                           /* index.publish */
    assert(pending[p] == s + 1 && owner[s] == g);    /* take_pending */
    pending[p] = 0;
    old = cell; cell = g; committed = g;
    if :: old != 0 -> old_slot = (owner[0] == old -> 0 : 1); retired[old_slot] = old :: else fi
  };
  if :: M(4) -> word[s] = WORD(g, LIVE) :: else fi;
  if :: old != 0 -> retire_block(old_slot, old) :: else fi;
  if :: pending[p] == 0 -> file[p] = 0 :: else fi;   /* ~LeaseFile */
  d_step { s = 0; g = 0; old = 0; old_slot = 0; done[_pid] = 1 }
}

proctype HouseKeeper() provided (!killed[_pid]) {
  byte s, g; bit ours;
  if                                                 /* one thing each: more is more of the same */
  :: true -> reap(0)
  :: true -> reap(1)
  :: d_step { retired[0] != 0 -> g = retired[0] }; retire_block(0, g)
  :: d_step { retired[1] != 0 -> g = retired[1] }; retire_block(1, g)
  fi;
  d_step { s = 0; g = 0; done[_pid] = 1 }
}

proctype Killer(byte victim) { d_step { !done[victim] -> killed[victim] = 1 } }

#define over(i) (done[i] || killed[i])
#define stuck(i) (over(i) || (owner[0] != 0 && owner[1] != 0))

/* Whoever comes next: the service's tick, or a put that finds no room. */
inline tidy() {
  reap(0);
  reap(1);
  if :: retired[0] != 0 -> g = retired[0]; retire_block(0, g) :: else fi;
  if :: retired[1] != 0 -> g = retired[1]; retire_block(1, g) :: else fi
}

proctype Judge() {
  byte s, g; bit ours, last;
  over(3) && over(4);
  do
  :: last -> break
  :: !last && stuck(1) && stuck(2) -> last = over(1) && over(2); tidy()
  od;
  assert(cell == committed);                         /* no committed row is lost */
  assert(pending[0] == 0 && pending[1] == 0 && retired[0] == 0 && retired[1] == 0 && !file[0] && !file[1]);
  s = 0;
  do
  :: s < SLOTS ->
     assert(owner[s] == 0 || (owner[s] == cell && word[s] == WORD(cell, LIVE) && bytes[s] == cell));
     s++
  :: else -> break
  od;
  done[5] = 1
}

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic {
    run Producer(0); run Producer(1); run HouseKeeper();
    if                                               /* producers are alike, and so are house keepers */
    :: done[4] = 1; run Judge(); run Killer(1); run Killer(2)
    :: done[4] = 1; run Judge(); run Killer(1); run Killer(3)
    :: run HouseKeeper(); run Judge(); run Killer(1)
    :: run HouseKeeper(); run Judge(); run Killer(3)
    fi
  }
}
