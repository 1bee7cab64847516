/* Whatever moves data: whole blocks (spill), and cells of several blocks into one (coalesce, compaction)
   (native/core/index/move.cpp, space.cpp, native/core/store/publish.cpp move, native/core/store/spill*.cpp).

   Two rows in one block. A mover copies the block as it is and makes every cell that names it name the copy; another one rewrites
   both rows, by cell, from wherever they lie; meanwhile row 0 is overwritten, row 1 is cleared, and somebody reads. The first
   mover may be killed anywhere. Three extents for four blocks, so that what is freed is reused.

   Lease and retirement are one step each here: lease.pml has them in parts.

   MUTANT 1 blind: cells are rewritten without a look at what they name now
   MUTANT 2 published_before_copied: the commit comes before the last byte
   MUTANT 3 compares_places: cells are compared by extent, and the source is not leased
   MUTANT 4 forgets_a_cell: the mover rewrites one of the cells and retires the block all the same
   MUTANT 5 keeps_what_nobody_names: a copy to which no cell moved is not given back
   MUTANT 6 frees_at_once: the old block is freed in the same transaction, leased or not
   MUTANT 7 never_retires: the old block is not listed when its last cell moves away
   MUTANT 8 cell_without_row: by-cell moves compare the block only, though the copy was made from other rows of it

   A mover needs its lease only so as not to read what is not there (spilled and punched extents): whatever it copied from a
   block that was freed meanwhile is given up at the commit, since no cell names that block any more. */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define EXTENTS 3
#define BLOCKS 5           /* 1: where both rows are; 2: the put; 3: the whole-block move; 4: the move by cell */
#define NONE 7

byte cell[2] = 1;          /* block that the row's cell names; 0: the row is gone */
byte owner[EXTENTS];       /* block of an extent, 0: free */
byte extent[BLOCKS] = NONE;
bit live[BLOCKS], listed[BLOCKS], pending[BLOCKS];
byte leases[BLOCKS];
byte bytes0[8], bytes1[8];  /* versions of the rows that lie there; [NONE]: what a stray read finds */
byte want[2] = 1;          /* ghost: version that every get must return, 0: cleared */
bit killed[8];
bit mover_leases;          /* those of the first mover, which go with it */

inline reserve(g) {        /* index.reserve; 0 in `ok`: no room */
  d_step {
    ok = 1;
    if
    :: owner[0] == 0 -> extent[g] = 0
    :: owner[0] != 0 && owner[1] == 0 -> extent[g] = 1
    :: owner[0] != 0 && owner[1] != 0 && owner[2] == 0 -> extent[g] = 2
    :: else -> ok = 0
    fi;
    if :: ok -> owner[extent[g]] = g; pending[g] = 1 :: else fi
  }
}
inline give_back(g) { owner[extent[g]] = 0; extent[g] = NONE; pending[g] = 0; live[g] = 0 }
inline count_cells(g) {    /* LiveCells::apply: the last cell is gone, so the block is listed */
  if :: g != 0 && cell[0] != g && cell[1] != g && extent[g] != NONE && !pending[g] && !M(7) -> listed[g] = 1; live[g] = 0 :: else fi
}
inline free_unleased(g) {  /* retire_blocks */
  d_step {
    if :: listed[g] && leases[g] == 0 -> assert(cell[0] != g && cell[1] != g); listed[g] = 0; give_back(g) :: else fi
  }
}

proctype Put() {           /* overwrites row 0 */
  bit ok; byte old;
  reserve(2);
  if
  :: ok ->
     d_step { assert(owner[extent[2]] == 2); bytes0[extent[2]] = 2 };
     live[2] = 1;
     d_step { if :: want[0] != 0 -> old = cell[0]; pending[2] = 0; cell[0] = 2; want[0] = 2; count_cells(old) :: else -> give_back(2) fi };
     if :: old != 0 -> free_unleased(old) :: else fi;
     old = 0
  :: else
  fi
}

proctype Clear() {         /* row 1 */
  byte old;
  d_step { old = cell[1]; cell[1] = 0; want[1] = 0; count_cells(old) };
  if :: old != 0 -> free_unleased(old) :: else fi;
  old = 0
}

proctype MoveBlock() provided (!killed[_pid]) {
  bit ok, row0, row1; byte from;
  d_step { row0 = (cell[0] == 1); row1 = (cell[1] == 1) };           /* which rows: a superset of those that still do later */
  reserve(3);
  if
  :: ok && (row0 || row1) ->
     if
     :: M(3) -> from = 0
     :: d_step { !M(3) && live[1] -> leases[1]++; mover_leases = 1; from = extent[1] }
     :: else -> d_step { give_back(3) }; goto out
     fi;
     bytes0[extent[3]] = bytes0[from];
     if :: M(2) -> skip :: else -> bytes1[extent[3]] = bytes1[from] fi;
     live[3] = 1;
     d_step {                                        /* one write transaction */
       if :: row0 && (cell[0] == 1 || M(1) || (M(3) && cell[0] != 0 && extent[cell[0]] == from)) -> cell[0] = 3 :: else fi;
       if :: row1 && !M(4) && (cell[1] == 1 || M(1) || (M(3) && cell[1] != 0 && extent[cell[1]] == from)) -> cell[1] = 3 :: else fi;
       if :: cell[0] == 3 || cell[1] == 3 || M(5) -> pending[3] = 0 :: else -> give_back(3) fi;
       count_cells(1);
       if :: M(4) -> listed[1] = 1; live[1] = 0 :: else fi;
       if :: M(6) && listed[1] -> listed[1] = 0; give_back(1) :: else fi
     };
     if :: M(2) && extent[3] != NONE -> bytes1[extent[3]] = bytes1[from] :: else fi;
     d_step { if :: mover_leases -> leases[1]--; mover_leases = 0 :: else fi };
     free_unleased(1)
  :: ok && !row0 && !row1 -> d_step { give_back(3) }
  :: else
  fi;
out:
  skip;
  d_step { row0 = 0; row1 = 0; from = 0; ok = 0 }
}

proctype MoveCells() {
  bit ok; byte from0, from1;
  reserve(4);
  if
  :: ok ->
     if                                              /* resolve and lease */
     :: d_step { cell[0] != 0 && cell[1] != 0 && live[cell[0]] && live[cell[1]] ->
                 from0 = cell[0]; from1 = cell[1]; leases[from0]++; leases[from1]++ }
     :: else -> d_step { give_back(4) }; goto out
     fi;
     if :: M(8) -> bytes0[extent[4]] = bytes1[extent[from0]] * 3 :: else -> bytes0[extent[4]] = bytes0[extent[from0]] fi;
     bytes1[extent[4]] = bytes1[extent[from1]];
     live[4] = 1;
     d_step {
       if :: cell[0] == from0 || M(1) -> cell[0] = 4 :: else fi;
       if :: cell[1] == from1 || M(1) -> cell[1] = 4 :: else fi;
       if :: cell[0] == 4 || cell[1] == 4 || M(5) -> pending[4] = 0 :: else -> give_back(4) fi;
       count_cells(from0); count_cells(from1)
     };
     d_step { leases[from0]--; leases[from1]-- };
     free_unleased(from0);
     free_unleased(from1)
  :: else
  fi;
out:
  skip;
  d_step { from0 = 0; from1 = 0; ok = 0 }
}

proctype Reader() {
  byte block, version, r;
  if :: r = 0 :: r = 1 fi;
  if
  :: d_step { cell[r] != 0 && live[cell[r]] -> block = cell[r]; version = want[r]; leases[block]++ } ->
     assert(version == (r == 0 -> bytes0[extent[block]] : bytes1[extent[block]]));
     d_step { assert(version == (r == 0 -> bytes0[extent[block]] : bytes1[extent[block]])); leases[block]-- };
     free_unleased(block)
  :: else
  fi;
  d_step { block = 0; version = 0; r = 0 }
}

proctype Killer() { d_step { killed[2] = 1; if :: mover_leases -> leases[1]--; mover_leases = 0 :: else fi } }

proctype Judge() {
  byte r, g;
  timeout ->
  if :: killed[2] && pending[3] -> give_back(3) :: else fi;         /* reap */
  g = 1;
  do :: g < BLOCKS -> free_unleased(g); g++ :: else -> break od;    /* reclaim */
  r = 0;
  do
  :: r < 2 ->
     assert((cell[r] == 0) == (want[r] == 0));
     if
     :: cell[r] != 0 ->
        assert(live[cell[r]] && owner[extent[cell[r]]] == cell[r]);
        assert(want[r] == (r == 0 -> bytes0[extent[cell[r]]] : bytes1[extent[cell[r]]]))
     :: else
     fi;
     r++
  :: else -> break
  od;
  r = 0;
  do :: r < EXTENTS -> assert(owner[r] == 0 || owner[r] == cell[0] || owner[r] == cell[1]); r++ :: else -> break od
}

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic {
    owner[0] = 1; extent[1] = 0; live[1] = 1; bytes0[0] = 1; bytes1[0] = 1;
    run Judge(); run MoveBlock();
    if                                               /* together they are too many states for a test that runs often */
    :: run MoveCells(); run Put(); run Reader()
    :: run MoveCells(); run Clear(); run Reader()
    :: run MoveCells(); run Put(); run Clear(); run Killer()
    :: run Put(); run Clear(); run Reader(); run Killer()
    fi
  }
}
