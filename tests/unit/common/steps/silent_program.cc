// Neither reads nor writes.
#include <unistd.h>

int main() {
  while (true) ::pause();
}
